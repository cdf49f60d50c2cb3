package cli

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/nodelock"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/lostnodes"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
)

// usualOwners are the owners of an agent, and the slots of a bridge with twice as many pods as a
// kubelet accepts by default (110).
const usualOwners = "router,health,ingress,ciliumnode-0..255"

// reclaimOptions are the flags of `reclaim`.
type reclaimOptions struct {
	output       string
	node         string
	owners       []string
	from, report string
	generations  int
	dryRun, yes  bool
	confirmed    string
}

func (d dependencies) reclaimCommand() *cobra.Command {
	o := &reclaimOptions{}
	return d.offline(&cobra.Command{
		Use:   "reclaim {--node NAME | --from FILE}",
		Short: "Release the addresses of the daemon of a lost node",
		Long: `Release the addresses of the daemon of another node, which has ended without a release and
will not return: each owner's container ID is computed from owner, node and network, and the
plugin's DEL is run with it, for each pool. No daemon is needed. Run it where the
plugin works as on the lost node, with the same options and the same CNI configuration:
it accepts the flags of serve, its environment variables and --config-dir.

THE NODE MUST BE REMOVED. Addresses that it still uses are allocated a second time afterwards.
This command cannot observe another node. It refuses only its own, and one whose daemon runs
on this machine. --yes-the-node-is-gone confirms it, with the name once more, or --yes for
the list of --from, which delegated-ipam-bridge lost-nodes writes from the Nodes of the
API server and which must not be older than 15 minutes.

It refuses plugins whose DEL does not work from any node (docs/reference/profiles.md,
delFromAnyNode). A DEL that finds nothing succeeds as well. IDs with a suffix -gN, which
an owner gets while an earlier DEL might still act, are tried with --generations only.

The exit status is 0 if each DEL has succeeded, and 1 otherwise. With --report it is 0 if
the report was written, which contains the failures.`,
		Example: `  # What would be released
  delegated-ipam reclaim --node=worker-7 --dry-run

  # The owners of a node without the bridge
  delegated-ipam reclaim --node=worker-7 --owner=router,health,ingress --yes-the-node-is-gone=worker-7

  # In the CronJob of deploy/kubernetes/overlays/reclaim
  delegated-ipam reclaim --from=/lost/nodes.json --report=/lost/report.json --yes`,
		Args: func(cmd *cobra.Command, given []string) error {
			return errors.Join(cmdline.Args()(cmd, given), o.check(cmd))
		},
	}, append([]string{"accept-unsafe-plugin", "node-name"}, pluginFlags...), func(cmd *cobra.Command, serve serveOptions, _ []string) error {
		if err := o.run(cmd, serve, d.now); err != nil {
			return fmt.Errorf("reclaim: %w", err)
		}
		return nil
	},
		options.Option{Name: "node", Value: options.Text(&o.node, "name"), Help: "name of the lost node: the --node-name of its daemon"},
		options.Option{
			Name: "owner", Value: options.Texts(&o.owners, "owners"), Default: usualOwners,
			Help: "list of owners that may hold addresses of --node; PREFIX and FIRST..LAST expand to numbered ones",
		},
		options.Option{Name: "from", Value: options.Path(&o.from), Help: "file with the container IDs of lost nodes, of delegated-ipam-bridge lost-nodes"},
		options.Option{Name: "report", Value: options.Path(&o.report), Help: "file to write for delegated-ipam-bridge lost-nodes --forget, with --from"},
		options.Option{Name: "generations", Value: options.Count(&o.generations, 0), Default: "0", Help: "highest suffix -gN of container IDs to try beside the ID without one"},
		options.Option{Name: "dry-run", Value: options.Bool(&o.dryRun), Help: "print the container IDs and run no DEL"},
		options.Option{Name: "yes-the-node-is-gone", Value: options.Text(&o.confirmed, "name"), Help: "confirm --node by its name, without which nothing is released"},
		options.Option{Name: "yes", Value: options.Bool(&o.yes), Help: "confirm --from, without which nothing is released"},
		options.Output(&o.output))
}

// check refuses flags that contradict each other, and a release without its confirmation.
func (o *reclaimOptions) check(cmd *cobra.Command) error {
	switch {
	case (o.node == "") == (o.from == ""):
		return cmdline.Usagef("--node is %q and --from is %q; expected one of them", o.node, o.from)
	case o.from != "" && (cmd.Flags().Changed("owner") || o.generations > 0):
		return cmdline.Usagef("--owner and --generations are for --node; the file of --from has container IDs")
	case o.report != "" && (o.from == "" || o.dryRun):
		return cmdline.Usagef("--report is %q; expected --from with it, and no --dry-run", o.report)
	case o.yes && o.node != "" || o.confirmed != "" && o.from != "":
		return cmdline.Usagef("expected --yes-the-node-is-gone to confirm --node, and --yes to confirm --from")
	case o.dryRun:
		return nil
	case o.from != "" && !o.yes:
		return cmdline.Usagef("the addresses of lost nodes would be released; expected --yes to confirm it, or --dry-run")
	case o.node != "" && o.confirmed != o.node:
		return cmdline.Usagef("the addresses of node %s would be released, in use or not; expected --yes-the-node-is-gone=%s to confirm that it will not return with them, or --dry-run; got %q", o.node, o.node, o.confirmed)
	}
	return nil
}

// maxListAge is how long the list of --from is valid: a node may have returned since.
const maxListAge = 15 * time.Minute

func (o *reclaimOptions) run(cmd *cobra.Command, serve serveOptions, now func() time.Time) error {
	owners, err := lostnodes.Expand(o.owners)
	if err == nil && (len(owners) == 0 || slices.Contains(owners, "")) {
		err = fmt.Errorf("--owner is %q; expected at least one owner, each with a name", owners)
	}
	if err != nil {
		return cmdline.Usage(err)
	}
	var list lostnodes.List
	var until time.Time
	if o.from != "" {
		if list, err = lostnodes.Read(o.from); err != nil {
			return err
		}
		if age := now().Sub(list.Time); age.Abs() > maxListAge {
			return fmt.Errorf("%s is of %s; expected a list that is at most %s old: a node may have returned since", o.from, list.Time.Format(time.RFC3339), maxListAge)
		}
		until = list.Time.Add(maxListAge)
	}
	return serve.withPlugins(func(config daemon.Config, networks *cniconf.Watcher, plugins plugin.Options) error {
		runner, err := plugin.New(plugins)
		if err != nil {
			return cmdline.Usage(err)
		}
		r := lostnodes.Reclaim{
			Plugin: runner, Self: config.NodeName, Daemon: nodelock.Holder,
			DryRun: o.dryRun, Until: until, Now: now,
		}
		var names []string
		for _, name := range networks.Pools() {
			n, err := networks.Network(name)
			if err != nil {
				return fmt.Errorf("pool %q: %w", name, err) // without it, its addresses would be forgotten
			}
			r.Networks, names = append(r.Networks, n), append(names, n.Name)
		}
		if err := r.Check(cmd.Context()); err != nil {
			return err
		}
		if o.from == "" {
			if err := r.CheckNode(o.node); err != nil {
				return err
			}
			list.Targets = lostnodes.Targets(o.node, owners, names, o.generations)
		}
		list.Targets = r.Run(cmd.Context(), list.Targets)
		if err := o.print(cmd, list.Targets); err != nil {
			return err
		}
		return o.writeOutcome(list)
	})
}

// writeOutcome writes the report if there is one; otherwise an ID that was not released is an
// error.
func (o *reclaimOptions) writeOutcome(list lostnodes.List) error {
	if o.report != "" {
		return list.Write(o.report)
	}
	left := slices.Clone(list.Targets)
	left = slices.DeleteFunc(left, func(t lostnodes.Target) bool { return t.State != lostnodes.Failed && t.State != lostnodes.NotTried })
	if len(left) > 0 {
		return fmt.Errorf("%d of %d container IDs were not released; run it again: a repeated DEL is harmless", len(left), len(list.Targets))
	}
	return nil
}

// print prints a row for each container ID.
func (o *reclaimOptions) print(cmd *cobra.Command, results []lostnodes.Target) error {
	err := output.Print(cmd.OutOrStdout(), o.output, append([]lostnodes.Target{}, results...), func(t output.Table) {
		t.Row("NODE", "OWNER", "NETWORK", "STATE", "CONTAINER-ID")
		for _, r := range results {
			t.Row(r.Node, r.Owner, r.Network, string(r.State), r.ContainerID)
			if r.Error != "" {
				t.Below(4, r.Error)
			}
		}
	})
	note := "a DEL succeeds also for an ID that held nothing; the plugin's store shows what remains"
	if o.dryRun {
		note = "nothing was released"
	}
	if o.output != options.OutputJSON {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d container IDs; %s\n", len(results), note)
	}
	return err
}
