package cli

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/lostnodes"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

func (d dependencies) lostNodesCommand() *cobra.Command {
	o, flags := options.NewLostNodes()
	return withOptions(flags, &cobra.Command{
		Use:   "lost-nodes",
		Short: "List the container IDs that lost nodes may hold",
		Long: `Compare the Nodes of the cluster with those that earlier runs have seen, and list the container
IDs of the nodes that were absent in each run for --grace, in --cni-networks: those of --owners,
and of the slots of the last pool. A CiliumNode is removed with its Node, so the
Nodes and the size of their pools are remembered in --config-map. Run it regularly, more often
than --max-gap: a node that no run has seen is not found, and after a longer gap, in which a
Node may have existed, its grace begins anew.

With --whereabouts-namespace only IDs with a reservation in the IPPools are listed,
also those with a suffix -gN, and a node is forgotten when it has no reservation.
Without it a node is forgotten when each DEL has succeeded.

delegated-ipam reclaim --from releases the addresses of the list, and with --forget its
report is applied. Only this command uses the API server, and only that one runs plugins
(deploy/kubernetes/overlays/reclaim). It needs the rights to list nodes and ciliumnodes, and to get
and update the ConfigMap; and to list ippools with --whereabouts-namespace.

Exit status: 0 done; 1 failed, or --forget has a report of nodes that could not be
reclaimed; 2 wrong usage.`,
		Example: `  delegated-ipam-bridge lost-nodes --grace=2h --file=/lost/nodes.json
  delegated-ipam-bridge lost-nodes --forget=/lost/report.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.lostNodes(cmd, o); err != nil {
				return fmt.Errorf("lost-nodes: %w", err)
			}
			return nil
		},
	})
}

func (d dependencies) lostNodes(cmd *cobra.Command, o *options.LostNodes) error {
	if err := o.Validate(); err != nil {
		return cmdline.Usage(err)
	}
	if o.File != "" && o.Forget != "" {
		return cmdline.Usagef("--file is %q and --forget is %q; expected one of them", o.File, o.Forget)
	}
	var err error
	if o.Owners, err = lostnodes.Expand(o.Owners); err != nil {
		return cmdline.Usage(fmt.Errorf("--owners: %w", err))
	}
	if len(o.Owners) == 0 && o.ExtraSlots == 0 {
		return cmdline.Usagef("--owners is empty and --extra-slots is 0; expected one of them: a node whose pool was never seen would have nothing to reclaim")
	}
	cluster, err := d.connectLogged(cmd, o.Log, o.Kubeconfig)
	if err != nil {
		return err
	}
	t := lostnodes.Tracker{
		Cluster: cluster, UpdateHistory: cluster.History(o.Namespace, o.ConfigMap).Update, Networks: o.CNINetworks, Owners: o.Owners,
		MaxGap: o.MaxGap, Grace: o.Grace, MaxNodes: o.MaxNodes, ExtraSlots: o.ExtraSlots, Now: time.Now,
	}
	if o.WhereaboutsNamespace != "" {
		t.ContainerIDs = cluster.IPPools(o.WhereaboutsNamespace)
	}
	if o.Forget != "" {
		report, err := lostnodes.Read(o.Forget)
		if err != nil {
			return err
		}
		return t.Forget(cmd.Context(), report)
	}
	found, err := t.Lost(cmd.Context())
	switch {
	case err != nil:
		return err
	case o.File == "":
		return output.JSON(cmd.OutOrStdout(), found)
	}
	count := map[string]int{}
	for _, t := range found.Targets {
		count[t.Node]++
	}
	for _, node := range slices.Sorted(maps.Keys(count)) {
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %d container IDs\n", node, count[node]); err != nil {
			return err
		}
	}
	return found.Write(o.File)
}
