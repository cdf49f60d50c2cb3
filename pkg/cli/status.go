package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/client/daemon"
)

// statusCommand is `status`.
func (p program) statusCommand() *cobra.Command {
	f := &clientFlags{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the sidecar",
		Long: `Show the state of the sidecar: whether it can hand out addresses and if not why,
the plugin behind each pool, and what waits or went wrong.

The exit status is 0 if the sidecar could be asked, ready or not.`,
		Example: `  delegated-ipam status

  # As a condition of a script
  delegated-ipam status -o json | jq -e '."delegated-ipam".ready'`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.status(cmd, *f) },
	}
	f.register(cmd, p.env)
	return cmd
}

func (p program) status(cmd *cobra.Command, f clientFlags) error {
	c := p.connect(f)
	answer, err := c.health(cmd.Context())
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	if f.output == outputJSON {
		return printJSON(cmd.OutOrStdout(), answer)
	}
	return printStatus(cmd.OutOrStdout(), answer.DelegatedIpam, p.now())
}

// health asks for the status; one without our part is an error.
func (c connection) health(ctx context.Context) (*models.StatusResponse, error) {
	ok, err := c.Daemon.GetHealthzContext(ctx, daemon.NewGetHealthzParams().WithTimeout(c.limit))
	if err != nil {
		return nil, c.explain(ctx, err, nil)
	}
	if ok.Payload.DelegatedIpam == nil {
		return nil, fmt.Errorf("%s is no socket of delegated-ipam: its status has no part \"delegated-ipam\" (cilium-agent's own has none)", c.socket)
	}
	return ok.Payload, nil
}

func printStatus(w io.Writer, s *models.DelegatedIPAMStatus, now time.Time) error {
	t := newTable(w)
	t.row("Version:", s.Version)
	t.row("Node:", s.NodeName)
	t.row("Started:", ago(time.Time(s.Started), now))
	t.row("Ready:", ready(s.Ready))
	for _, reason := range s.Reasons {
		t.row("  because", oneLine(reason))
	}
	t.row("Attachments:", counts(s.Attachments, "none"))
	t.row("Oldest pending release:", pending(s, now))
	t.row("Counters:", counts(s.Counters, "nothing unusual"))
	t.row("Quarantined records:", fmt.Sprint(len(s.Quarantined)))
	if err := t.flush(); err != nil {
		return err
	}
	return errors.Join(printQuarantine(w, s.Quarantined), printPools(w, s.Pools, now))
}

func ready(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// pending is how long the oldest release has been waiting for the plugin.
func pending(s *models.DelegatedIPAMStatus, now time.Time) string {
	if s.OldestPendingRelease == nil {
		return "none"
	}
	return "for " + length(now.Sub(time.Time(*s.OldestPendingRelease)))
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

func printQuarantine(w io.Writer, records []*models.QuarantinedRecord) error {
	var errs []error
	for _, r := range records {
		_, err := fmt.Fprintf(w, "  %s: %s\n", r.File, oneLine(r.Reason))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// printPools prints each pool with the plugin behind it; an error stands below
// its pool, because it is longer than a column.
func printPools(w io.Writer, pools []*models.PoolStatus, now time.Time) error {
	for _, p := range pools {
		since := ""
		if p.Since != nil {
			since = ago(time.Time(*p.Since), now)
		}
		if _, err := fmt.Fprintf(w, "\nPool %s:\n", p.Pool); err != nil {
			return err
		}
		t := newTable(w)
		t.row("  Network:", p.Network)
		t.row("  File:", p.File)
		t.row("  Plugin:", p.Plugin)
		t.row("  Binary:", p.Binary)
		t.row("  CNI version:", p.CniVersion)
		t.row("  Profile:", p.Profile)
		for _, name := range slices.Sorted(maps.Keys(p.ProfileFacts)) {
			t.row("    "+name+":", fact(p.ProfileFacts[name]))
		}
		t.row("  Since:", since)
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
