package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// rootCommand is the whole command line.
func (p program) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "delegated-ipam COMMAND",
		Short: "Cilium's IPAM API over a delegated CNI IPAM plugin",
		Long: `delegated-ipam runs beside cilium-agent, speaks Cilium's IPAM API on a unix
socket, and gets every address from the CNI IPAM plugin that cilium-cni delegates to.

"serve" is the sidecar. The other commands ask a running one through its socket.

Exit status: 0 done; 1 refused or failed, with the reason on stderr; 2 wrong usage.`,
		Args: cobra.ArbitraryArgs,
		RunE: noCommand,
		// A command that is this many letters away is suggested (cobra's own default).
		SuggestionsMinimumDistance: 2,
		DisableFlagsInUseLine:      true,
		SilenceErrors:              true,
		SilenceUsage:               true,
	}
	root.SetFlagErrorFunc(option.WrongFlag)
	root.AddCommand(p.serveCommand(), p.allocateCommand(), p.restoreCommand(), p.releaseCommand(), p.listCommand(), p.gcCommand(),
		p.statusCommand(), p.doctorCommand(), p.probeCommand(), p.idCommand(), p.versionCommand())
	p.complete(root)
	return root
}

// noCommand runs when the first argument is no command.
func noCommand(root *cobra.Command, args []string) error {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	want := strings.Join(names, ", ")
	if len(args) == 0 {
		return option.WrongUsage("the command is missing; expected one of %s", want)
	}
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		return option.WrongUsage("unknown command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return option.WrongUsage("unknown command %q; expected one of %s", args[0], want)
}
