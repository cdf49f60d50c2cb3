package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

func (d dependencies) profileCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile COMMAND",
		Short: "List, show and try plugin profiles",
		Long: `A profile describes a plugin type: the effect and the guarantees of its verbs
(docs/reference/profiles.md). "list" and "show" print the profiles that serve would use, "try" runs
a plugin and proposes a profile. No sidecar is needed.`,
		Example: `  delegated-ipam profile list
  delegated-ipam profile show host-local
  delegated-ipam profile try my-ipam --cni-conf-file=/etc/cni/net.d/10-my.conflist`,
		Args:                  cobra.ArbitraryArgs,
		RunE:                  noCommand,
		DisableFlagsInUseLine: true,
	}
	// As for the root command, which does not pass it on.
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(d.profileListCommand(), d.profileShowCommand(), d.profileTryCommand())
	return cmd
}

// profileFlags are the flags of the profile commands: some of those of serve, with its sources.
type profileFlags struct {
	sidecar *options.Sidecar
	set     *options.Set
}

// register adds flags of serve to a command.
func (f *profileFlags) register(cmd *cobra.Command, env map[string]string, names ...string) {
	f.sidecar, f.set = options.NewSidecar(env)
	for _, name := range names {
		cmd.Flags().AddFlag(f.set.Flags().Lookup(name))
	}
}

// resolve reads the environment and --config-dir, and returns the options as serve would have them.
func (f profileFlags) resolve(env map[string]string) (options.Sidecar, error) {
	if err := f.set.Resolve(env); err != nil {
		return options.Sidecar{}, cmdline.Usage(err)
	}
	sidecar, err := f.sidecar.Complete()
	return sidecar, cmdline.Usage(err)
}

// profiles returns the profiles that serve would use.
func (f profileFlags) profiles(env map[string]string) (profile.Set, error) {
	sidecar, err := f.resolve(env)
	if err != nil {
		return nil, err
	}
	return profile.Loader(sidecar.PluginProfiles)()
}

// listedProfile is one profile as `profile list -o json` prints it.
type listedProfile struct {
	Type      string         `json:"type"`
	Dangers   []string       `json:"dangers"`
	VerifyBy  profile.Verify `json:"verify-by"`
	TryUnsafe string         `json:"try-unsafe,omitempty"`
	Sources   []string       `json:"sources"`
}

func (d dependencies) profileListCommand() *cobra.Command {
	var flags profileFlags
	var format clientFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the plugin types that have a profile",
		Long: `List the plugin types that have a profile: whether the plugin is safe, where the facts
come from, the dangers of a plugin that serve refuses without --accept-unsafe-plugin, and
whether the sidecar notices that the plugin has lost an address. Any other type has the
profile "unknown".`,
		Example: `  delegated-ipam profile list
  delegated-ipam profile list --plugin-profile=my-ipam.json -o json`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := flags.profiles(d.env)
			if err != nil {
				return fmt.Errorf("profile list: %w", err)
			}
			return printProfiles(cmd.OutOrStdout(), set, format.output)
		},
	}
	options.Register(cmd.Flags(), options.Output(&format.output))
	flags.register(cmd, d.env, "plugin-profile", "config-dir")
	return cmd
}

func printProfiles(w io.Writer, set profile.Set, format string) error {
	all := []listedProfile{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		p := set[name]
		all = append(all, listedProfile{p.Type, append([]string{}, p.Dangers...), p.VerifyBy, p.TryUnsafe, append([]string{}, p.Sources...)})
	}
	if format == outputJSON {
		return output.JSON(w, all)
	}
	t := output.NewTable(w)
	t.Row("TYPE", "SAFE", "SOURCES")
	for _, p := range all {
		safe := "yes"
		if len(p.Dangers) > 0 {
			safe = "no"
		}
		t.Row(p.Type, safe, strings.Join(p.Sources, "; "))
		for _, danger := range p.Dangers {
			t.Below(2, "danger: "+danger)
		}
		if p.VerifyBy == profile.VerifyNothing {
			t.Below(2, "not noticed: that the plugin no longer holds an allocated address")
		}
		if p.TryUnsafe != "" {
			t.Below(2, "must not be tried: "+p.TryUnsafe)
		}
	}
	return t.Flush()
}

func (d dependencies) profileShowCommand() *cobra.Command {
	var flags profileFlags
	cmd := &cobra.Command{
		Use:   "show TYPE",
		Short: "Print the profile of a plugin type",
		Long: `Print the profile of a plugin type in JSON, as serve would use it. Edited, it is a file
for --plugin-profile. For a type without a profile it is the careful one, "unknown", under
the name of the type.`,
		Example: `  delegated-ipam profile show my-ipam > my-ipam.json`,
		Args:    args("TYPE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := flags.profiles(d.env)
			if err != nil {
				return fmt.Errorf("profile show: %w", err)
			}
			p := set.For(args[0])
			if p.Type != args[0] {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s has no profile; this is %q\n", args[0], p.Type)
				p.Type = args[0]
			}
			return output.JSON(cmd.OutOrStdout(), p)
		},
	}
	flags.register(cmd, d.env, "plugin-profile", "config-dir")
	cmd.ValidArgsFunction = completeTypes
	return cmd
}

// completeTypes completes the types that have an embedded profile.
func completeTypes(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	set, err := profile.Load()
	if err != nil || len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(set)), cobra.ShellCompDirectiveNoFileComp
}
