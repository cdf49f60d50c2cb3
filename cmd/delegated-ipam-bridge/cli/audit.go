package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/audit"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

func (d dependencies) auditCommand() *cobra.Command {
	var sharedRange bool
	o, flags := options.NewCluster(options.Option{
		Name: "shared-range", Value: options.Bool(&sharedRange),
		Help: "do not compare addresses with podCIDRs: the plugin is cluster-wide, or some nodes have other ranges",
	})
	return withOptions(flags, &cobra.Command{
		Use:   "audit",
		Short: "Compare the pools of all nodes of the cluster",
		Long: `Read all CiliumNodes, Nodes and pods once, and report:

  address-in-two-pools       an address is in the pools of several nodes
  address-outside-pod-cidrs  a node has an address of another node's podCIDRs, or of none
  address-of-another-node    a node has the address of another node itself, or of a pod there
  address-not-in-pool        a node uses an address that is not in its pool
  agent-not-responding       an agent does not report the addresses of pods, or does not answer marks
  node-deleted               a CiliumNode with a pool has no Node any more
  no-cilium-node             a Node with a bridge pod has no CiliumNode
  no-bridge                  a node whose pool the bridge fills has no ready bridge pod
  malformed-address          a CiliumNode has an address that the agent does not find

Nothing is changed. It needs the right to list ciliumnodes, nodes and pods (the ClusterRole
delegated-ipam-audit). docs/operate/bridge.md explains each finding.

Exit status: 0 no finding; 1 failed, for example because the API server did not respond, so
that it is unknown whether there are findings; 2 wrong usage; 3 there are findings.`,
		Example: `  # With the current context of kubectl
  delegated-ipam-bridge audit

  # The addresses that are in two pools, for a script
  delegated-ipam-bridge audit -o json | jq -r '.findings[] | select(.check == "address-in-two-pools") | .address'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, c, err := d.readNodes(cmd, o)
			if err != nil {
				return err
			}
			if c.BridgePods, c.PodAddresses, err = cluster.Pods(cmd.Context()); err != nil {
				return err
			}
			c.SharedRange, c.Now = sharedRange, time.Now()
			report := c.Report()
			err = output.Print(cmd.OutOrStdout(), o.Output, report, func(t output.Table) { printReport(t, report) })
			if err == nil && len(report.Findings) > 0 {
				err = &cmdline.ExitError{Code: exitFindings, Err: fmt.Errorf("audit: %d findings", len(report.Findings))}
			}
			return err
		},
	})
}

func printReport(t output.Table, r audit.Report) {
	if len(r.Findings) > 0 {
		t.Row("CHECK", "NODE", "ADDRESS", "MESSAGE")
	}
	for i, f := range r.Findings {
		t.Row(string(f.Check), f.Node, f.Address, logging.OneLine(f.Message))
		// Once for each check: it is the same for all its findings.
		if i == len(r.Findings)-1 || r.Findings[i+1].Check != f.Check {
			t.Below(3, "remedy: "+f.Remedy)
		}
	}
	t.Line(fmt.Sprintf("%d findings; read %d CiliumNodes (%d addresses in pools, %d used), %d Nodes and %d bridge pods",
		len(r.Findings), r.CiliumNodes, r.PoolAddresses, r.UsedAddresses, r.Nodes, r.BridgePods))
}
