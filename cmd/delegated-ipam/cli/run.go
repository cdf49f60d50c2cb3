// Package cli is the command line of delegated-ipam: commands, their flags and their output.
package cli

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// dependencies are the inputs of the commands from their process; tests replace them.
type dependencies struct {
	version string
	env     map[string]string
	now     func() time.Time
	serve   func(context.Context, daemon.Config, logrus.FieldLogger) error
	// requestLimit is the time limit of one request.
	requestLimit time.Duration
	// pollInterval is the interval at which `release --all` lists the remaining attachments.
	pollInterval time.Duration
	// completionLimit is how long a completion waits for the daemon.
	completionLimit time.Duration
}

// Run is the cmdline.Run of delegated-ipam.
func Run(ctx context.Context, args, environ []string, stdout, stderr io.Writer, version string) int {
	return cmdline.Execute(ctx, Command(environ, version), args, stdout, stderr)
}

// Command returns the command tree with the defaults that it has in an environment. version is as
// in cmdline.Run.
func Command(environ []string, version string) *cobra.Command {
	d := dependencies{
		version:         cmdline.Version(version),
		env:             options.Environment(environ),
		now:             time.Now,
		serve:           daemon.Run,
		requestLimit:    client.DefaultTimeout,
		pollInterval:    time.Second,
		completionLimit: time.Second,
	}
	return d.command()
}

// command returns the command tree.
func (d dependencies) command() *cobra.Command {
	root := withCommands(&cobra.Command{
		Use:   "delegated-ipam",
		Short: "Cilium's IPAM API over a delegated CNI IPAM plugin",
		Long: `delegated-ipam runs beside cilium-agent, serves Cilium's IPAM API on a unix socket,
and gets every address from the CNI IPAM plugin that cilium-cni delegates to.

"serve" is the daemon. "profile", "reclaim", "journal", "history" and "uninstall" need none;
the others query a running one through its socket, which -H names.

Exit status: 0 done; 1 refused or failed, with the reason on stderr; 2 wrong usage.`,
	})
	cmdline.AddGroup(root, cmdline.GroupRun, d.serveCommand(), d.pauseCommand())
	cmdline.AddGroup(root, cmdline.GroupAddresses, d.allocateCommand(), d.restoreCommand(), d.releaseCommand(), d.listCommand(), d.holderCommand(), d.idCommand())
	cmdline.AddGroup(root, cmdline.GroupDiagnosis, d.statusCommand(), d.doctorCommand(), d.historyCommand(), d.probeCommand(), d.profileCommand())
	cmdline.AddGroup(root, cmdline.GroupMaintenance, d.gcCommand(), d.reclaimCommand(), d.journalCommand(), d.uninstallCommand())
	cmdline.AddVersion(root, d.version).Long += " `delegated-ipam status` shows the version of a running daemon."
	d.addFlagCompletions(root)
	return root
}

// withCommands adds commands to one that does nothing without them.
func withCommands(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.Args, cmd.RunE = cobra.ArbitraryArgs, noCommand
	cmd.DisableFlagsInUseLine = true
	cmd.AddCommand(commands...)
	return cmd
}

// noCommand runs when the first argument is not a command.
func noCommand(root *cobra.Command, args []string) error {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	want := strings.Join(names, ", ")
	if len(args) == 0 {
		return cmdline.Usagef("the command is missing; expected one of %s", want)
	}
	root.SuggestionsMinimumDistance = 2 // the default of cobra, which SuggestionsFor does not set
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		return cmdline.Usagef("unknown command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return cmdline.Usagef("unknown command %q; expected one of %s", args[0], want)
}

// args accepts exactly these arguments, named as in the help text; "IP" must be an address, "OWNER"
// a name, and "TYPE" a plugin type.
func args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cmdline.Args(names...)(cmd, args); err != nil {
			return err
		}
		for i, text := range args {
			switch names[i] {
			case "IP":
				if ip, err := netip.ParseAddr(text); err != nil || ip.Zone() != "" {
					return cmdline.Usagef("IP is %q; expected an address without a prefix length and a zone, such as 10.15.0.2 or fd00:15::2", text)
				}
			case "TYPE":
				if err := profile.CheckType(text); err != nil {
					return cmdline.Usagef("TYPE is %q; %w", text, err)
				}
			case "OWNER":
				// The API accepts an empty owner, but releases its addresses as soon as the client
				// has disconnected, which a command does immediately.
				if text == "" {
					return cmdline.Usagef("OWNER is %q; expected a name such as router or kube-system/coredns-1", text)
				}
			}
		}
		return nil
	}
}
