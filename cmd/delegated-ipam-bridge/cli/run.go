// Package cli is the command line of delegated-ipam-bridge.
package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge"
	"github.com/delegated-ipam/delegated-ipam/internal/nodenetwork"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// dependencies are the parts of the process that the commands use. Tests replace them.
type dependencies struct {
	version string
	env     map[string]string
	serve   func(context.Context, options.Bridge, logrus.FieldLogger) error
	// serveNetwork serves the command network.
	serveNetwork func(context.Context, options.Network, logrus.FieldLogger) error
}

// Run is the cmdline.Run of delegated-ipam-bridge.
func Run(ctx context.Context, args, environ []string, stdout, stderr io.Writer, version string) int {
	return cmdline.Execute(ctx, Command(environ, version), args, stdout, stderr)
}

// Command returns the command tree with the defaults that it has in an environment. version is as
// in cmdline.Run.
func Command(environ []string, version string) *cobra.Command {
	d := dependencies{version: cmdline.Version(version), env: options.Environment(environ), serve: bridge.Run, serveNetwork: nodenetwork.Run}
	return d.command()
}

func (d dependencies) command() *cobra.Command {
	o, flags := options.NewBridge(d.env)
	cmd := withOptions(flags, &cobra.Command{
		Use:   "delegated-ipam-bridge",
		Short: "Supply an unmodified cilium-agent with addresses through its CiliumNode",
		Long: `delegated-ipam-bridge runs beside delegated-ipam and a cilium-agent in ipam mode
crd. It keeps spec.ipam.pool of the node's CiliumNode filled with addresses that the
daemon has from the delegated CNI IPAM plugin, and releases those that are not needed.

It is stateless: it can be killed and started at any moment. SIGTERM or SIGINT ends it
without releasing an address. SIGHUP is logged and has no effect: every option is a flag.
SIGUSR1 writes the stacks of all goroutines to stderr.

Exit status: 0 ended by a signal; 1 failed, with the reason on stderr; 2 wrong usage.`,
		Example: `  # In a pod, with K8S_NODE_NAME from spec.nodeName
  delegated-ipam-bridge --metrics-address=:9966

  # Outside a pod
  delegated-ipam-bridge --node-name=worker-1 --kubeconfig=/etc/kubernetes/bridge.conf`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			const onHangup = "SIGHUP ignored: every option is a flag; restart the bridge to change one"
			return start(cmd, o.Log, bridge.Validate(*o), onHangup, func(log logrus.FieldLogger) error {
				log.WithFields(logrus.Fields{
					"version": d.version, "node": o.NodeName, "socket": options.Socket(o.Host), "pool": o.Pool, "settings": fmt.Sprintf("%+v", bridge.Settings(*o)),
				}).Info("Starting delegated-ipam-bridge")
				return d.serve(cmd.Context(), *o, log)
			})
		},
	})
	cmdline.AddGroup(cmd, cmdline.GroupRun, d.networkCommand())
	cmdline.AddGroup(cmd, cmdline.GroupDiagnosis, d.auditCommand(), d.holderCommand())
	cmdline.AddGroup(cmd, cmdline.GroupMaintenance, d.lostNodesCommand(), d.uninstallCommand())
	cmdline.AddVersion(cmd, d.version)
	return cmd
}

// withOptions adds options to a command without arguments.
func withOptions(flags *pflag.FlagSet, cmd *cobra.Command) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = cmdline.Args()
	}
	cmd.DisableFlagsInUseLine = true
	cmd.Flags().AddFlagSet(flags)
	return cmd
}
