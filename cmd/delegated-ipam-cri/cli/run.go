// Package cli is the command line of delegated-ipam-cri.
package cli

import (
	"context"
	"io"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/sandboxes"
)

// Run is the cmdline.Run of delegated-ipam-cri.
func Run(ctx context.Context, args, environ []string, stdout, stderr io.Writer, version string) int {
	return cmdline.Execute(ctx, Command(environ, version), args, stdout, stderr)
}

// Command returns the command with the defaults that it has in an environment. version is as in
// cmdline.Run.
func Command(environ []string, version string) *cobra.Command {
	return command(environ, cmdline.Version(version), sandboxes.Run)
}

func command(environ []string, version string, serve func(context.Context, options.CRI, logrus.FieldLogger) error) *cobra.Command {
	env := options.Environment(environ)
	o, flags := options.NewCRI(env)
	cmd := &cobra.Command{
		Use:   "delegated-ipam-cri",
		Short: "Report the pod sandboxes of the container runtime to the daemon",
		Long: `delegated-ipam-cri lists the pod sandboxes of the container runtime over CRI, and
reports all of them to the daemon of the node. The daemon then releases the addresses
of containers that ended without a DEL.

It needs root, calls Version and ListPodSandbox only, and changes nothing. A list that is
empty, failed or lacks the sandbox of its own pod is not reported. Failures are logged;
it ends only if its mount of the socket is stale because the runtime has restarted: the
kubelet then starts it again, with the new socket. SIGTERM or SIGINT ends it. SIGUSR1
writes the stacks of all goroutines to stderr.

Exit status: 0 ended by a signal; 1 failed, with the reason on stderr; 2 wrong usage.`,
		Example: `  # In a pod, with K8S_POD_UID from metadata.uid
  delegated-ipam-cri --cri-socket=/run/crio/crio.sock`,
		Args: cmdline.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer cmdline.DumpGoroutines(cmd.ErrOrStderr())()
			if err := o.Validate(); err != nil {
				return cmdline.Usage(err)
			}
			log, err := logging.New(cmd.ErrOrStderr(), o.LogLevel, o.LogFormat == options.LogJSON)
			if err != nil {
				return cmdline.Usage(err)
			}
			log.WithFields(logrus.Fields{
				"version": version, "runtime": o.CRISocket, "socket": o.SocketPath, "interval": o.Interval, "podUID": o.PodUID,
			}).Info("Starting delegated-ipam-cri")
			return serve(cmd.Context(), *o, log)
		},
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().AddFlagSet(flags)
	cmdline.AddVersion(cmd, version)
	return cmd
}
