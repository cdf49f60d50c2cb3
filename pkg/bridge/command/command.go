// Package command is the command line of delegated-ipam-bridge.
package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge"
	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// program is what the command needs of the world around it.
type program struct {
	version string
	env     map[string]string
	serve   func(context.Context, bridge.Config, logrus.FieldLogger) error
}

// options are the flags.
type options struct {
	bridge.Config
	host      string
	logLevel  logrus.Level
	logFormat string
}

// Run runs one command line and returns the exit status: 0 ended as asked, 1
// failed, 2 wrong usage; the reason of 1 and 2 is on stderr. args are the
// arguments without the program's name and environ the environment as
// os.Environ gives it. version may be empty; the build information of the
// binary is shown then. It ends when ctx does.
func Run(ctx context.Context, args, environ []string, stdout, stderr io.Writer, version string) int {
	p := program{version: option.Version(version), env: option.Environment(environ), serve: bridge.Run}
	return option.Execute(ctx, p.command(), args, stdout, stderr)
}

func (p program) command() *cobra.Command {
	o := defaults(p.env)
	cmd := &cobra.Command{
		Use:   "delegated-ipam-bridge",
		Short: "Give an unmodified cilium-agent its addresses through its CiliumNode",
		Long: `delegated-ipam-bridge runs beside delegated-ipam and a cilium-agent in ipam mode
crd. It keeps spec.ipam.pool of the node's CiliumNode filled with addresses that the
delegated CNI IPAM plugin has given to the sidecar, and gives back what is not needed.

It has no state of its own: it can be killed and started at any moment. SIGTERM or
SIGINT ends it; nothing is released.

Exit status: 0 ended as asked; 1 failed, with the reason on stderr; 2 wrong usage.`,
		Example: `  # In a pod, with K8S_NODE_NAME from spec.nodeName
  delegated-ipam-bridge --metrics-address=:9966

  # Outside a pod
  delegated-ipam-bridge --node-name=worker-1 --kubeconfig=/etc/kubernetes/bridge.conf`,
		Version: p.version,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return option.WrongUsage("got %q; expected no argument", args)
			}
			return nil
		},
		RunE:                  func(cmd *cobra.Command, _ []string) error { return p.run(cmd, o) },
		DisableFlagsInUseLine: true,
		SilenceErrors:         true,
		SilenceUsage:          true,
	}
	cmd.SetFlagErrorFunc(option.WrongFlag)
	o.register(cmd.Flags())
	return cmd
}

// defaults are the options of which nothing is said.
func defaults(env map[string]string) *options {
	return &options{
		Config: bridge.Config{
			NodeName: option.NodeName(env),
			Pool:     "default",
			// Cilium's default for both its own and cloud pools (pkg/defaults, IPAMPreAllocation).
			Settings: planner.Settings{MinAllocate: 8, PreAllocate: 8, ReleaseExcess: true},
			// The default of Cilium's operator (its option of this name, in seconds).
			ReleaseDelay: 180 * time.Second,
		},
		host:      option.DefaultHost(env),
		logLevel:  logrus.InfoLevel,
		logFormat: option.LogText,
	}
}

func (o *options) register(flags *pflag.FlagSet) {
	flags.Var(option.Text(&o.NodeName, "name"), "node-name", "name of this node and its CiliumNode; by default $K8S_NODE_NAME as in cilium-agent, else the host name")
	flags.Var(option.Text(&o.Kubeconfig, "path"), "kubeconfig", "how to reach the API server; the service account of the pod if not set")
	flags.VarP(option.Host(&o.host), "host", "H", "socket of the sidecar; by default $"+option.SocketEnv+", else that of delegated-ipam serve")
	flags.Var(option.Text(&o.Pool, "name"), "pool", "pool of the sidecar that addresses come from")
	flags.Var(option.Count(&o.Settings.MinAllocate), "min-allocate", "addresses that the node has at least")
	flags.Var(option.Count(&o.Settings.PreAllocate), "pre-allocate", "addresses that are free")
	flags.Var(option.Count(&o.Settings.MaxAllocate), "max-allocate", "addresses that the node has at most; 0 for no limit")
	flags.Var(option.Count(&o.Settings.MaxAboveWatermark), "max-above-watermark", "how many more than --pre-allocate may be free before one is given back")
	option.AddSwitch(flags, &o.Settings.ReleaseExcess, "release-excess", "give back what is free above that")
	flags.Var(option.Duration(&o.ReleaseDelay), "excess-ip-release-delay", "how long an address on its way back must be seen unused; more than twice the agent's --ipam-cilium-node-update-rate")
	flags.Var(option.Text(&o.MetricsAddress, "host:port"), "metrics-address", "where /metrics, /readyz and /healthz are served; :port is on loopback only, and nothing is served if not set")
	flags.Var(option.Level(&o.logLevel), "log-level", "what is logged: this and everything more important")
	flags.Var(option.Choice(&o.logFormat, option.LogText, option.LogJSON), "log-format", "how it is logged, to stderr")
}

func (p program) run(cmd *cobra.Command, o *options) error {
	o.Socket = option.Socket(o.host)
	if err := o.Validate(); err != nil {
		return &option.UsageError{Err: err}
	}
	log := option.NewLog(cmd.ErrOrStderr(), o.logLevel, o.logFormat)
	if err := logClient(log); err != nil {
		return err
	}
	log.WithFields(logrus.Fields{
		"version": p.version, "node": o.NodeName, "socket": o.Socket, "pool": o.Pool, "settings": fmt.Sprintf("%+v", o.Settings),
	}).Info("delegated-ipam-bridge starts")
	return p.serve(cmd.Context(), o.Config, log)
}
