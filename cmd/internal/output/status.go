package output

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

// Status prints the status of a sidecar as a page. verbose adds the options that have their
// default and the profile of each plugin.
func Status(w io.Writer, s *models.DelegatedIPAMStatus, now time.Time, verbose bool) error {
	return statusPrinter{w, now, verbose}.print(s)
}

// statusPrinter prints a status as of now.
type statusPrinter struct {
	io.Writer
	now     time.Time
	verbose bool
}

func (p statusPrinter) print(s *models.DelegatedIPAMStatus) error {
	t := NewTable(p)
	t.Row("Version:", s.Version)
	t.Row("Node:", s.NodeName)
	t.Row("Started:", Ago(time.Time(s.Started), p.now))
	t.Row("Ready:", p.ready(s))
	for _, reason := range s.Reasons {
		t.Row("  because", OneLine(reason))
	}
	t.Row("Attachments:", counts(s.Attachments, "none"))
	t.Row("Oldest pending release:", p.pending(s.OldestPendingRelease))
	t.Row("Last error:", p.lastError(s.LastError))
	t.Row("Counters:", counts(s.Counters, "nothing unusual"))
	t.Row("Quarantined records:", fmt.Sprint(len(s.Quarantined)))
	return errors.Join(t.Flush(), p.printQuarantine(s.Quarantined), p.printPools(s.Pools), p.printOptions(s.Options))
}

func (p statusPrinter) ready(s *models.DelegatedIPAMStatus) string {
	text := "no"
	if s.Ready {
		text = "yes"
	}
	if s.Since != nil {
		text += ", for " + Duration(p.now.Sub(time.Time(*s.Since)))
	}
	return text
}

// pending returns the release that has waited longest for the plugin, and why.
func (p statusPrinter) pending(r *models.PendingRelease) string {
	if r == nil {
		return "none"
	}
	text := fmt.Sprintf("%s of pool %s (container ID %s), for %s", r.Owner, r.Pool, r.ContainerID, Duration(p.now.Sub(time.Time(r.Since))))
	if r.LastError != "" {
		text += ": " + OneLine(r.LastError)
	}
	return text
}

// lastError returns the last failure; its text names the owner if there is one.
func (p statusPrinter) lastError(e *models.LastError) string {
	if e == nil {
		return "none"
	}
	return Ago(time.Time(e.Time), p.now) + ": " + OneLine(e.Text)
}

// fact returns a value of a profile on one line, text without quotes.
func fact(v any) string {
	if text, ok := v.(string); ok {
		return OneLine(text)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// counts returns the counts that are not 0, by name; none if there are none.
func counts(of map[string]int64, none string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if of[name] != 0 {
			out = append(out, fmt.Sprintf("%d %s", of[name], name))
		}
	}
	if len(out) == 0 {
		return none
	}
	return strings.Join(out, ", ")
}

func (p statusPrinter) printQuarantine(records []*models.QuarantinedRecord) error {
	t := NewTable(p)
	for _, r := range records {
		t.Row("  "+r.File, p.since(r.Since), OneLine(r.Reason))
	}
	return t.Flush()
}

// printPools prints each pool with its plugin. Errors are below the pool, because they are
// longer than a column.
func (p statusPrinter) printPools(pools []*models.PoolStatus) error {
	for _, pool := range pools {
		if _, err := fmt.Fprintf(p, "\nPool %s:\n", logging.Printable(pool.Pool)); err != nil {
			return err
		}
		t := NewTable(p)
		t.Row("  Network:", pool.Network)
		t.Row("  File:", pool.File)
		t.Row("  Plugin:", pool.Plugin)
		t.Row("  Binary:", pool.Binary)
		t.Row("  Plugin versions:", strings.Join(pool.PluginVersions, ", "))
		t.Row("  CNI version:", pool.CniVersion)
		t.Row("  Profile:", pool.Profile)
		if p.verbose {
			for _, name := range slices.Sorted(maps.Keys(pool.ProfileFacts)) {
				t.Row("    "+name+":", fact(pool.ProfileFacts[name]))
			}
		}
		t.Row("  Verified by:", verification(pool.Verification))
		t.Row("  Since:", p.since(pool.Since))
		if pool.Error != "" {
			t.Row("  Error:", OneLine(pool.Error))
		}
		if pool.NotReady != "" {
			t.Row("  Not ready:", OneLine(pool.NotReady))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// verification returns how held attachments are verified, and why in that way.
func verification(v *models.PoolVerification) string {
	switch {
	case v == nil:
		return ""
	case v.Reason == "":
		return v.By
	default:
		return v.By + " (" + OneLine(v.Reason) + ")"
	}
}

// printOptions prints the options that are not the default, or all of them if verbose.
func (p statusPrinter) printOptions(all []*models.OptionValue) error {
	shown := slices.DeleteFunc(slices.Clone(all), func(o *models.OptionValue) bool {
		return !p.verbose && o.Source == models.OptionValueSourceDefault
	})
	if len(shown) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(p); err != nil {
		return err
	}
	t := NewTable(p)
	t.Row("OPTION", "VALUE", "FROM")
	for _, o := range shown {
		t.Row(o.Name, OneLine(o.Value), o.Source)
	}
	return t.Flush()
}

// since returns how long ago t was, empty if that is not known.
func (p statusPrinter) since(t *strfmt.DateTime) string {
	if t == nil {
		return ""
	}
	return Ago(time.Time(*t), p.now)
}
