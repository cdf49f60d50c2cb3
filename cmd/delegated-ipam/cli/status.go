package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-openapi/strfmt"
	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

func (d dependencies) statusCommand() *cobra.Command {
	var f clientFlags
	var verbose bool
	return d.connected(&cobra.Command{
		Use:   "status",
		Short: "Show the state of the daemon",
		Long: `Show the state of the daemon: whether it can allocate addresses and if not why, the
plugin of each pool with the addresses of its ranges, pending releases and errors, and the
options of serve that are not the default, each with its source.

The exit status is 0 if the daemon answers, ready or not.`,
		Example: `  delegated-ipam status

  # As a condition of a script
  delegated-ipam status -o json | jq -e '."delegated-ipam".ready'`,
		Args: args(),
	}, &f, func(cmd *cobra.Command, c connection, _ []string) error {
		status, err := c.health(cmd.Context())
		if err != nil {
			return fmt.Errorf("status: %w", err)
		}
		return output.Print(cmd.OutOrStdout(), f.output, status, func(t output.Table) {
			statusPrinter{t, d.now(), verbose}.print(status.DelegatedIpam)
		})
	}, options.Option{Name: "verbose", Value: options.Bool(&verbose), Help: "show every option of serve, and the profile of each plugin"})
}

// statusPrinter prints a status as of now on a page. verbose adds the options that have their default
// and the profile of each plugin.
type statusPrinter struct {
	output.Table
	now     time.Time
	verbose bool
}

func (p statusPrinter) print(s *models.DelegatedIPAMStatus) {
	p.Row("Version:", s.Version)
	p.Row("Node:", s.NodeName)
	p.Row("Started:", output.Ago(time.Time(s.Started), p.now))
	p.Row("Ready:", p.ready(s))
	for _, reason := range s.Reasons {
		p.Row("  because", reason)
	}
	p.Row("Attachments:", counts(s.Attachments, "none"))
	p.Row("Oldest pending release:", p.pending(s.OldestPendingRelease))
	p.spool(s.Spool)
	p.endedContainers(s.EndedContainers)
	lastError := "none"
	if e := s.LastError; e != nil { // its text names the owner if there is one
		lastError = output.Ago(time.Time(e.Time), p.now) + ": " + e.Text
	}
	p.Row("Last error:", lastError)
	noCounters := "nothing unusual"
	if s.EndedContainers != nil && s.EndedContainers.Pending > 0 {
		noCounters = "none"
	}
	p.Row("Counters:", counts(s.Counters, noCounters))
	p.Row("Quarantined records:", fmt.Sprint(len(s.Quarantined)))
	p.EndColumns()
	for _, r := range s.Quarantined {
		p.Row("  "+r.File, p.since(r.Since), r.Reason)
	}
	for _, pool := range s.Pools {
		p.pool(pool)
	}
	p.options(s.Options)
}

func (p statusPrinter) ready(s *models.DelegatedIPAMStatus) string {
	text := "no"
	if s.Ready {
		text = "yes"
	}
	if s.Since != nil {
		text += ", for " + output.Duration(p.now.Sub(time.Time(*s.Since)))
	}
	return text
}

// pending returns the release that has waited longest for the plugin, and why.
func (p statusPrinter) pending(r *models.PendingRelease) string {
	if r == nil {
		return "none"
	}
	text := fmt.Sprintf("%s of pool %s (container ID %s), for %s", r.Owner, r.Pool, r.ContainerID, output.Duration(p.now.Sub(time.Time(r.Since))))
	if r.LastError != "" {
		text += ": " + r.LastError
	}
	return text
}

// spool prints the DELs that runtimes could not deliver, if there is something to know.
func (p statusPrinter) spool(s *models.SpoolStatus) {
	if s == nil || s.Pending == 0 && s.Quarantined == 0 && s.Error == "" {
		return
	}
	text := fmt.Sprintf("%d pending", s.Pending)
	if s.Oldest != nil {
		text += ", the oldest left " + p.since(s.Oldest)
	}
	if s.Quarantined > 0 {
		text += fmt.Sprintf(", %d files in quarantine", s.Quarantined)
	}
	if s.Error != "" {
		text += ": " + s.Error
	}
	p.Row("Spooled DELs:", text)
}

// endedContainers prints what is known of containers that ended without a DEL, if there is something to
// know.
func (p statusPrinter) endedContainers(e *models.EndedContainers) {
	if e == nil || e.Pending == 0 && len(e.HiddenDirectories) == 0 && e.Runtime == "" {
		return
	}
	text := fmt.Sprintf("%d pending", e.Pending)
	if e.Oldest != nil {
		text += ", the oldest ended " + p.since(e.Oldest)
	}
	switch {
	case e.Pending > 0 && e.DelaySeconds == 0:
		text += "; not released: --missing-netns-release-delay is 0"
	case e.Pending > 0:
		text += fmt.Sprintf("; released after %s (--missing-netns-release-delay)", output.Duration(time.Duration(e.DelaySeconds)*time.Second))
	}
	p.Row("Ended containers:", text)
	for _, dir := range e.HiddenDirectories {
		p.Row("  Not visible:", dir+": mount it from the host; the end of its containers is not noticed")
	}
	if e.Runtime != "" {
		p.Row("  Runtime:", fmt.Sprintf("%s, %d sandboxes, reported %s", e.Runtime, e.Sandboxes, cmp.Or(p.since(e.Reported), "-")))
	}
}

// counts returns the counts that are not 0, by name; none if there are none.
func counts(of map[string]int64, none string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if of[name] != 0 {
			out = append(out, fmt.Sprintf("%d %s", of[name], name))
		}
	}
	return cmp.Or(strings.Join(out, ", "), none)
}

// pool prints a pool with its plugin. Errors are below the columns' names, because they are longer
// than a column.
func (p statusPrinter) pool(pool *models.PoolStatus) {
	p.Line("")
	p.Line("Pool " + pool.Pool + ":")
	p.Row("  Network:", pool.Network)
	p.Row("  File:", pool.File)
	p.Row("  Plugin:", pool.Plugin)
	p.Optional("  Embedded:", pool.Embedded)
	if pool.Embedded == "" {
		p.Row("  Binary:", pool.Binary)
	}
	p.Optional("  Differs:", pool.ProgramDiffers)
	p.Row("  Plugin versions:", strings.Join(pool.PluginVersions, ", "))
	p.Row("  CNI version:", pool.CniVersion)
	p.Row("  Profile:", pool.Profile)
	if w := pool.WarmLeases; w != nil {
		text := fmt.Sprintf("%d of %d ready", w.Ready, w.Wanted)
		if w.Error != "" {
			text += ": " + w.Error
		}
		p.Row("  Warm leases:", text)
	}
	if p.verbose {
		for _, name := range slices.Sorted(maps.Keys(pool.ProfileFacts)) {
			p.Row("    "+name+":", fact(pool.ProfileFacts[name]))
		}
	}
	if from, _ := pool.ProfileFacts["releaseFromAddress"].(bool); from {
		p.Row("  Releases:", "only from addresses that are local in --cni-netns; other leases stay at the server until they expire (doctor: netns)")
	}
	p.Row("  Verified by:", verification(pool.Verification))
	p.Optional("  Addresses:", addresses(pool.Addresses))
	p.Row("  Since:", p.since(pool.Since))
	p.Optional("  Error:", pool.Error)
	p.Optional("  Not ready:", pool.NotReady)
}

// fact returns a value of a profile, text without quotes.
func fact(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	data, _ := json.Marshal(v) // was decoded from JSON
	return string(data)
}

// addresses returns the use of a pool's addresses.
func addresses(all []*models.PoolAddresses) string {
	var out []string
	for _, a := range all {
		text := familyNames[a.Family] + " " + number(&a.Used)
		switch {
		case a.Total == nil || a.Free == nil:
			text += " used, ranges unknown"
		case *a.Free < 1:
			text += " of " + number(a.Total) + " used, full"
		default:
			text += " of " + number(a.Total) + " used, " + number(a.Free) + " free"
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

var familyNames = map[string]string{models.PoolAddressesFamilyIPv4: "IPv4", models.PoolAddressesFamilyIPv6: "IPv6"}

// number returns a number of addresses, rounded if it is large, as the API does.
func number(n *float64) string {
	switch {
	case n == nil:
		return "unknown"
	case *n < 1e9:
		return fmt.Sprintf("%.0f", *n)
	}
	return fmt.Sprintf("%.1e", *n)
}

// verification returns how held attachments are verified, and why in that way.
func verification(v *models.PoolVerification) string {
	switch {
	case v == nil:
		return ""
	case v.Reason == "":
		return v.By
	}
	return v.By + " (" + v.Reason + ")"
}

// options prints the options that are not the default, or all of them if verbose.
func (p statusPrinter) options(all []*models.OptionValue) {
	if !p.verbose {
		all = slices.DeleteFunc(all, func(o *models.OptionValue) bool { return o.Source == models.OptionValueSourceDefault })
	}
	if len(all) > 0 {
		p.Line("")
		p.Row("OPTION", "VALUE", "FROM")
	}
	for _, o := range all {
		p.Row(o.Name, o.Value, o.Source)
	}
}

// since returns how long ago t was, empty if that is not known.
func (p statusPrinter) since(t *strfmt.DateTime) string {
	if t == nil {
		return ""
	}
	return output.Ago(time.Time(*t), p.now)
}
