package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/uninstall"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/spool"
)

// uninstallOptions are the flags of `uninstall`.
type uninstallOptions struct {
	yes, discardQuarantine bool
	timeout                time.Duration
}

func (d dependencies) uninstallCommand() *cobra.Command {
	o := &uninstallOptions{}
	return d.offline(&cobra.Command{
		Use:   "uninstall --yes",
		Short: "Remove the state directory and the socket of a daemon that has ended",
		Long: `Remove the state directory and the socket of the daemon from this node. Run it
after "release --all --yes", when no process uses the addresses any more. The paths are
those that serve would have here, from the same sources.

The command waits until a daemon that still serves has carried out the DELs of containers
in the spool, at most a minute. Then it waits until the daemon has ended, because its lock
must be free, and names the process that holds it. It refuses while the journal has an
attachment, or a damaged file, and while a DEL waits in the spool: without them
the plugin would keep the address forever. It also refuses a directory with a file that the
daemon did not make. A mount point is emptied.

It succeeds if neither exists, so the command can be repeated. The exit status is 1 if
anything stays.`,
		Example: `  # After the daemon's DaemonSet was deleted, with its mounts and as its user
  delegated-ipam uninstall --yes --config-dir=/etc/delegated-ipam`,
		Args: args(),
	}, []string{"state-dir", "socket-path"}, func(cmd *cobra.Command, serve serveOptions, _ []string) error {
		return d.uninstall(cmd, serve, *o)
	},
		options.Option{Name: "yes", Value: options.Bool(&o.yes), Help: "confirm the removal, which is refused without it"},
		options.Option{Name: "discard-quarantine", Value: options.Bool(&o.discardQuarantine), Help: "also remove the files in quarantine/, whose addresses the plugin may hold"},
		options.Option{Name: "timeout", Value: options.Delay(&o.timeout), Default: "0s", Help: "how long to wait for the end of the daemon (0s = no limit)"})
}

func (d dependencies) uninstall(cmd *cobra.Command, serve serveOptions, o uninstallOptions) error {
	if !o.yes {
		return cmdline.Usagef("the state directory and the socket of this node are removed; expected --yes to confirm it")
	}
	config, err := serve.resolve()
	if err != nil {
		return err
	}
	limit := drainLimit
	if o.timeout > 0 {
		limit = min(limit, o.timeout)
	}
	d.requestLimit = min(d.requestLimit, limit) // the daemon may hang
	c, err := d.connect(config.SocketPath)
	if err != nil {
		return err
	}
	if err := d.waitDrained(cmd, c, limit); err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	ctx := cmd.Context()
	if o.timeout > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("waited for %s; delete the daemon's pod or stop its service, and run the command again", o.timeout))
		defer cancel()
		ctx = limited
	}
	removed, err := uninstall.Run(ctx, uninstall.Options{
		StateDir: config.StateDir, SocketPath: config.SocketPath, DiscardQuarantine: o.discardQuarantine,
		Self: statedir.Holder{Pod: config.PodName, Started: time.Now()},
		OnWait: func(holder string) {
			fmt.Fprintf(cmd.ErrOrStderr(), "waiting for the end of the daemon: another process holds %s: %s\n", config.StateDir, holder)
		},
	})
	for _, path := range removed {
		fmt.Fprintln(cmd.OutOrStdout(), "removed", path)
	}
	if err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	if len(removed) == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "nothing to remove in %s and at %s\n", config.StateDir, config.SocketPath)
	}
	return nil
}

// drainLimit limits the wait for the DELs in the spool: a failed one is repeated after 5, 10 and 20 s.
const drainLimit = time.Minute

// waitDrained waits until a daemon has carried out the DELs in its spool. Of those that are left after the
// limit the error has file, container interface and reason. Without a daemon that answers it succeeds: what
// removes the spool checks it again.
func (d dependencies) waitDrained(cmd *cobra.Command, c connection, limit time.Duration) error {
	begun := d.now()
	for reported := false; ; reported = true {
		status, err := c.health(cmd.Context())
		if err != nil {
			return nil //nolint:nilerr // none carries them out
		}
		s := status.DelegatedIpam.Spool
		if s == nil || s.Pending == 0 {
			return nil
		}
		left := fmt.Sprintf("%d DELs of containers wait in %s", s.Pending, s.Directory)
		switch {
		case d.now().Sub(begun) >= limit:
			return fmt.Errorf("%s after %s: %s; %s", left, limit, logging.OneLine(s.Error), spool.Remedy)
		case !reported:
			fmt.Fprintf(cmd.ErrOrStderr(), "%s; waiting for the daemon, which carries them out, at most %s\n", left, limit)
		}
		if err := d.untilPoll(cmd.Context()); err != nil {
			return err
		}
	}
}

func (d dependencies) pauseCommand() *cobra.Command {
	return &cobra.Command{
		Hidden: true, // only manifests run it
		Use:    "pause",
		Short:  "Do nothing until SIGTERM or SIGINT",
		Long: `Do nothing until SIGTERM or SIGINT, then end with status 0: for a pod whose init
containers do the work, such as that of the uninstall DaemonSet.`,
		Example: `  # The last container of a pod whose init container has removed the state directory
  delegated-ipam pause`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			<-cmd.Context().Done()
			return nil
		},
	}
}
