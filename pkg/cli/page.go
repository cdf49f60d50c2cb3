package cli

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
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// page is what `status` prints for a person.
type page struct {
	io.Writer
	now     time.Time
	verbose bool
}

func (w page) print(s *models.DelegatedIPAMStatus) error {
	t := newTable(w)
	t.row("Version:", s.Version)
	t.row("Node:", s.NodeName)
	t.row("Started:", ago(time.Time(s.Started), w.now))
	t.row("Ready:", w.ready(s))
	for _, reason := range s.Reasons {
		t.row("  because", oneLine(reason))
	}
	t.row("Attachments:", counts(s.Attachments, "none"))
	t.row("Oldest pending release:", w.pending(s.OldestPendingRelease))
	t.row("Last error:", w.lastError(s.LastError))
	t.row("Counters:", counts(s.Counters, "nothing unusual"))
	t.row("Quarantined records:", fmt.Sprint(len(s.Quarantined)))
	return errors.Join(t.flush(), w.printQuarantine(s.Quarantined), w.printPools(s.Pools), w.printOptions(s.Options))
}

func (w page) ready(s *models.DelegatedIPAMStatus) string {
	text := "no"
	if s.Ready {
		text = "yes"
	}
	if s.Since != nil {
		text += ", for " + length(w.now.Sub(time.Time(*s.Since)))
	}
	return text
}

// pending is which release has been waiting longest for the plugin, and why.
func (w page) pending(r *models.PendingRelease) string {
	if r == nil {
		return "none"
	}
	text := fmt.Sprintf("%s of pool %s (container ID %s), for %s", r.Owner, r.Pool, r.ContainerID, length(w.now.Sub(time.Time(r.Since))))
	if r.LastError != "" {
		text += ": " + oneLine(r.LastError)
	}
	return text
}

// lastError is what went wrong last; its text names the owner where there is one.
func (w page) lastError(e *models.LastError) string {
	if e == nil {
		return "none"
	}
	return ago(time.Time(e.Time), w.now) + ": " + oneLine(e.Text)
}

// fact is one value of a profile, on one line; a text stands without its quotes.
func fact(v any) string {
	if text, ok := v.(string); ok {
		return oneLine(text)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// counts are names with numbers, by name, without those that are 0.
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

func (w page) printQuarantine(records []*models.QuarantinedRecord) error {
	t := newTable(w)
	for _, r := range records {
		t.row("  "+r.File, w.since(r.Since), oneLine(r.Reason))
	}
	return t.flush()
}

// printPools prints each pool with the plugin behind it; an error stands below
// its pool, because it is longer than a column.
func (w page) printPools(pools []*models.PoolStatus) error {
	for _, p := range pools {
		if _, err := fmt.Fprintf(w, "\nPool %s:\n", option.Printable(p.Pool)); err != nil {
			return err
		}
		t := newTable(w)
		t.row("  Network:", p.Network)
		t.row("  File:", p.File)
		t.row("  Plugin:", p.Plugin)
		t.row("  Binary:", p.Binary)
		t.row("  Plugin versions:", strings.Join(p.PluginVersions, ", "))
		t.row("  CNI version:", p.CniVersion)
		t.row("  Profile:", p.Profile)
		if w.verbose {
			for _, name := range slices.Sorted(maps.Keys(p.ProfileFacts)) {
				t.row("    "+name+":", fact(p.ProfileFacts[name]))
			}
		}
		t.row("  Verified by:", verification(p.Verification))
		t.row("  Since:", w.since(p.Since))
		if p.Error != "" {
			t.row("  Error:", oneLine(p.Error))
		}
		if p.NotReady != "" {
			t.row("  Not ready:", oneLine(p.NotReady))
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	return nil
}

// verification is what verifies held attachments, and why it is that.
func verification(v *models.PoolVerification) string {
	switch {
	case v == nil:
		return ""
	case v.Reason == "":
		return v.By
	default:
		return v.By + " (" + oneLine(v.Reason) + ")"
	}
}

// printOptions prints the options that somebody has set, or all of them.
func (w page) printOptions(all []*models.OptionValue) error {
	shown := slices.DeleteFunc(slices.Clone(all), func(o *models.OptionValue) bool {
		return !w.verbose && o.Source == models.OptionValueSourceDefault
	})
	if len(shown) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	t := newTable(w)
	t.row("OPTION", "VALUE", "FROM")
	for _, o := range shown {
		t.row(o.Name, oneLine(o.Value), o.Source)
	}
	return t.flush()
}

// since is how long ago something began; empty if that is not known.
func (w page) since(t *strfmt.DateTime) string {
	if t == nil {
		return ""
	}
	return ago(time.Time(*t), w.now)
}
