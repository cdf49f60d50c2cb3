package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/lostnodes"
)

// printReclaimed prints a row for each container ID.
func (o reclaimOptions) printReclaimed(cmd *cobra.Command, results []lostnodes.Result) error {
	if o.output == outputJSON {
		return output.JSON(cmd.OutOrStdout(), append([]lostnodes.Result{}, results...))
	}
	t := output.NewTable(cmd.OutOrStdout())
	t.Row("NODE", "OWNER", "POOL", "STATE", "CONTAINER-ID")
	for _, r := range results {
		t.Row(r.Node, r.Owner, r.Pool, string(r.State), r.ContainerID)
		if r.Error != "" {
			t.Below(4, r.Error)
		}
	}
	note := "a DEL succeeds also for an ID that held nothing; the plugin's store shows what remains"
	if o.dryRun {
		note = "nothing was released"
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%d container IDs; %s\n", len(results), note)
	return errors.Join(t.Flush(), err)
}

// reportOf returns the result for each node. A node without any attempt is in neither list.
func reportOf(nodes []lostnodes.Node, results []lostnodes.Result) lostnodes.Report {
	report := lostnodes.Report{Reclaimed: []string{}, Failed: map[string]string{}}
	count := map[string]map[lostnodes.State]int{}
	for _, r := range results {
		if count[r.Node] == nil {
			count[r.Node] = map[lostnodes.State]int{}
		}
		count[r.Node][r.State]++
		if _, ok := report.Failed[r.Node]; !ok && r.State == lostnodes.Failed {
			report.Failed[r.Node] = r.Error
		}
	}
	for _, n := range nodes {
		if c := count[n.Name]; c[lostnodes.Released] > 0 && c[lostnodes.Failed]+c[lostnodes.NotTried] == 0 {
			report.Reclaimed = append(report.Reclaimed, n.Name)
		}
	}
	return report
}
