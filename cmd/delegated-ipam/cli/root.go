package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

// command returns the command tree.
func (d dependencies) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "delegated-ipam COMMAND",
		Short: "Cilium's IPAM API over a delegated CNI IPAM plugin",
		Long: `delegated-ipam runs beside cilium-agent, serves Cilium's IPAM API on a unix socket,
and gets every address from the CNI IPAM plugin that cilium-cni delegates to.

"serve" is the sidecar; "profile", "reclaim", "uninstall" and "pause" need none. The other
commands query a running one through its socket.

Exit status: 0 done; 1 refused or failed, with the reason on stderr; 2 wrong usage.`,
		Args: cobra.ArbitraryArgs,
		RunE: noCommand,
		// A command at this edit distance is suggested (the default of cobra).
		SuggestionsMinimumDistance: 2,
		DisableFlagsInUseLine:      true,
		SilenceErrors:              true,
		SilenceUsage:               true,
	}
	root.SetFlagErrorFunc(cmdline.FlagError)
	root.AddCommand(d.serveCommand(), d.allocateCommand(), d.restoreCommand(), d.releaseCommand(), d.listCommand(), d.gcCommand(),
		d.statusCommand(), d.doctorCommand(), d.probeCommand(), d.idCommand(), d.profileCommand(), d.reclaimCommand(),
		d.uninstallCommand(), d.pauseCommand())
	cmdline.AddVersion(root, d.version).Long += " `delegated-ipam status` shows the version of a running sidecar."
	d.addCompletions(root)
	return root
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
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		return cmdline.Usagef("unknown command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return cmdline.Usagef("unknown command %q; expected one of %s", args[0], want)
}
