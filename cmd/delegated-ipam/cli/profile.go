package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

func (d dependencies) profileCommand() *cobra.Command {
	return withCommands(&cobra.Command{
		Use:   "profile",
		Short: "List, show and try plugin profiles",
		Long: `A profile describes a plugin type: the effect and the guarantees of its verbs
(docs/reference/profiles.md). "list" and "show" print the profiles that serve would use, "try" runs
a plugin and proposes a profile. No daemon is needed.`,
		Example: `  delegated-ipam profile list
  delegated-ipam profile show host-local
  delegated-ipam profile try my-ipam --cni-conf-file=/etc/cni/net.d/10-my.conflist`,
	}, d.profileListCommand(), d.profileShowCommand(), d.profileTryCommand())
}

// profiles returns the profiles that serve would use.
func (o serveOptions) profiles() (profile.Set, error) {
	config, err := o.resolve()
	if err != nil {
		return nil, err
	}
	return config.PluginOptions().Profiles()
}

// listedProfile is one profile as `profile list -o json` prints it.
type listedProfile struct {
	Type        string         `json:"type"`
	Dangers     []string       `json:"dangers"`
	VerifyBy    profile.Verify `json:"verify-by"`
	NotSeparate string         `json:"not-separate,omitempty"`
	TryUnsafe   string         `json:"try-unsafe,omitempty"`
	Sources     []string       `json:"sources"`
}

func (d dependencies) profileListCommand() *cobra.Command {
	var format string
	return d.offline(&cobra.Command{
		Use:   "list",
		Short: "List the plugin types that have a profile",
		Long: `List the plugin types that have a profile: whether the plugin is safe, where the facts
come from, the dangers of a plugin that serve refuses without --accept-unsafe-plugin, whether
the daemon notices that the plugin has lost an address, and which attachments share an
address. Any other type has the profile "unknown".`,
		Example: `  delegated-ipam profile list
  delegated-ipam profile list --plugin-profile=my-ipam.json -o json`,
		Args: args(),
	}, []string{"plugin-profile"}, func(cmd *cobra.Command, serve serveOptions, _ []string) error {
		set, err := serve.profiles()
		if err != nil {
			return fmt.Errorf("profile list: %w", err)
		}
		return printProfiles(cmd.OutOrStdout(), set, format)
	}, options.Output(&format))
}

func printProfiles(w io.Writer, set profile.Set, format string) error {
	all := []listedProfile{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		p := set[name]
		all = append(all, listedProfile{p.Type, append([]string{}, p.Dangers...), p.VerifyBy, p.NotSeparate(), p.TryUnsafe, append([]string{}, p.Sources...)})
	}
	return output.Print(w, format, all, func(t output.Table) {
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
			if p.NotSeparate != "" {
				t.Below(2, "not separate: "+p.NotSeparate)
			}
			if p.TryUnsafe != "" {
				t.Below(2, "must not be tried: "+p.TryUnsafe)
			}
		}
	})
}

func (d dependencies) profileShowCommand() *cobra.Command {
	return d.offline(&cobra.Command{
		Use:   "show TYPE",
		Short: "Print the profile of a plugin type",
		Long: `Print the profile of a plugin type in JSON, as serve would use it. Edited, it is a file
for --plugin-profile. For a type without a profile it is the careful one, "unknown", under
the name of the type.`,
		Example:           `  delegated-ipam profile show my-ipam > my-ipam.json`,
		Args:              args("TYPE"),
		ValidArgsFunction: completeTypes,
	}, []string{"plugin-profile"}, func(cmd *cobra.Command, serve serveOptions, args []string) error {
		set, err := serve.profiles()
		if err != nil {
			return fmt.Errorf("profile show: %w", err)
		}
		p := set.For(args[0])
		if p.Type != args[0] {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s has no profile; this is %q\n", args[0], p.Type)
			p.Type = args[0]
		}
		return output.JSON(cmd.OutOrStdout(), p)
	})
}

// completeTypes completes the types that have an embedded profile.
func completeTypes(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	set, err := profile.Load()
	if err != nil || len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(set)), cobra.ShellCompDirectiveNoFileComp
}
