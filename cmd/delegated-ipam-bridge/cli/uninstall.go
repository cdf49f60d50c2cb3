package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// uninstallInterval is the time between two looks at what uninstall awaits.
const uninstallInterval = 2 * time.Second

func (d dependencies) uninstallCommand() *cobra.Command {
	o, flags := options.NewUninstall()
	return withOptions(flags, &cobra.Command{
		Use:   "uninstall prepare|finish",
		Short: "Remove an installation, after its addresses are released",
		Long: `Two steps of "helm uninstall", which runs both as Jobs (deploy/chart):

  prepare  delete bridge and network, unless a pod has an address of a pool
  finish   wait until the pods of NAME-uninstall have released the addresses of each
           node, delete the daemon, and wait until its files are removed

Between both the DaemonSet NAME-uninstall is created. It needs the rights to get and delete
the DaemonSets, and to list pods and ciliumnodes.

Exit status: 0 done; 1 refused or failed; 2 wrong usage.`,
		Args: cmdline.Args("STEP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			steps := map[string]func(fleet.Uninstall, context.Context) error{"prepare": fleet.Uninstall.Prepare, "finish": fleet.Uninstall.Finish}
			step, known := steps[args[0]]
			if !known {
				return cmdline.Usagef("unknown step %q; expected prepare or finish", args[0])
			}
			cluster, err := d.connect(o.Kubeconfig)
			if err != nil {
				return err
			}
			u := fleet.Uninstall{
				Cluster: cluster, Namespace: o.Namespace, Name: o.Name, KeepDaemon: o.KeepDaemon,
				Interval: uninstallInterval, Progress: cmd.OutOrStdout(),
			}
			if err := step(u, cmd.Context()); err != nil {
				return fmt.Errorf("uninstall %s: %w", args[0], err)
			}
			return nil
		},
	})
}
