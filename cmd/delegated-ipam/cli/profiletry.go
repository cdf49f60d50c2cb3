package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/profiletry"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

func (d dependencies) profileTryCommand() *cobra.Command {
	var format string
	return d.offline(&cobra.Command{
		Use:   "try TYPE",
		Short: "Run a plugin on scratch container IDs and propose a profile",
		Long: `Run the verbs of a plugin on scratch container IDs in a safe order, report its behaviour,
and propose a profile. TYPE is the ipam.type of a configured network: of a pool of serve,
or of the file of --cni-conf-file.

At most two IDs hold addresses at a time, and all are released, also if a call fails or the
command is interrupted. No other container ID is touched, and GC is not run. An ID that could
not be released is printed with the command that releases it.

Fields that no step can determine are those of the profile in use, which is "unknown" for
a new type: the report has the origin of each field. Differences from the
profile of the type are explained.

The exit status is 0 if every step was possible and everything is released, with
or without differences, and 1 otherwise.`,
		Example: `  # In the daemon's container: its network and its plugin
  delegated-ipam profile try host-local

  # A new plugin
  delegated-ipam profile try my-ipam --cni-conf-file=my.conflist --cni-bin-dir=/opt/cni/bin

  # The proposal as a file for --plugin-profile
  delegated-ipam profile try my-ipam -o json | jq .proposal > my-ipam.json`,
		Args:              args("TYPE"),
		ValidArgsFunction: completeTypes,
	}, pluginFlags, func(cmd *cobra.Command, serve serveOptions, args []string) error {
		err := serve.withPlugins(func(_ daemon.Config, networks *cniconf.Watcher, plugins plugin.Options) error {
			return profileTry(cmd, networks, plugins, args[0], format)
		})
		if err != nil {
			return fmt.Errorf("profile try: %w", err)
		}
		return nil
	}, options.Output(&format))
}

func profileTry(cmd *cobra.Command, networks *cniconf.Watcher, plugins plugin.Options, pluginType, format string) error {
	network, err := networkOf(networks, pluginType)
	if err != nil {
		return err
	}
	set, err := plugins.Profiles()
	if err != nil {
		return err
	}
	used := profiletry.ProfileFor(set, pluginType)
	if used.TryUnsafe != "" {
		return fmt.Errorf("plugin %s must not be tried: %s; `delegated-ipam profile show %s` prints its profile", used.Type, used.TryUnsafe, used.Type)
	}
	set = maps.Clone(set)
	set[pluginType] = used
	plugins.Profiles = func() (profile.Set, error) { return set, nil }
	// Dangers apply to an address in use. A separate field forbids this command.
	plugins.AcceptUnsafe = true
	plugins.HostLocal = plugin.HostLocalProgram // what is tried
	runner, err := plugin.New(plugins)
	if err != nil {
		return cmdline.Usage(err)
	}
	o := profiletry.Options{Plugin: runner, Profile: used, Network: network, IDPrefix: profiletry.NewIDPrefix()}
	fmt.Fprintf(cmd.ErrOrStderr(), "trying %s in network %q of %s; scratch container IDs begin with %s\n", pluginType, network.Name, network.File, o.IDPrefix)
	// A terminal that is closed ends the steps as SIGINT does.
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	report, err := profiletry.Run(ctx, o)
	return errors.Join(err, printTry(cmd.OutOrStdout(), report, format))
}

// networkOf returns the network of the first pool whose plugin is of a type.
func networkOf(networks *cniconf.Watcher, pluginType string) (call.Network, error) {
	var found []string
	for _, pool := range networks.Pools() {
		n, err := networks.Network(pool)
		switch {
		case err != nil:
			found = append(found, fmt.Sprintf("pool %q: %v", pool, err))
		case n.IPAMType == pluginType:
			return n, nil
		default:
			found = append(found, fmt.Sprintf("%s: network %q has ipam.type %q", n.File, n.Name, n.IPAMType))
		}
	}
	return call.Network{}, fmt.Errorf("no network with ipam.type %q: %s; expected TYPE to be the ipam.type of a network, which --cni-conf-file or --cni-network selects", pluginType, strings.Join(found, "; "))
}

// printTry prints the report. Without a step the page would be empty.
func printTry(w io.Writer, r profiletry.Report, format string) error {
	if format == options.OutputJSON {
		return output.JSON(w, r)
	}
	if len(r.Steps) == 0 {
		return nil
	}
	p := output.NewTable(w)
	section := func(title string) {
		p.Line("")
		p.Line(title + ":")
	}
	p.Row("Plugin:", r.Type)
	p.Row("Binary:", r.Binary)
	p.Row("Network:", r.Network)
	p.Row("Plugin versions:", strings.Join(r.Versions, ", "))
	p.Row("CNI version:", r.CNIVersion)
	p.Row("Profile in use:", r.Profile)
	section("Steps")
	p.Row("VERB", "CONTAINER ID", "PURPOSE", "RESULT")
	for _, s := range r.Steps {
		p.Row(s.Verb, s.ContainerID, s.Purpose, cmp.Or(strings.Join(s.Addresses, ", "), s.Outcome))
		if s.Error != "" {
			p.Below(2, s.Error)
		}
	}
	if len(r.Notes) > 0 {
		section("Notes")
	}
	for _, note := range r.Notes {
		p.Line("- " + note)
	}
	if r.Proposal != nil {
		section("Fields of the proposal")
		p.Row("FIELD", "FROM", "VALUE")
		for _, f := range r.Facts {
			p.Row(f.Field, f.From, string(f.Value))
			p.Below(2, f.Reason)
			for _, d := range r.Differences {
				if d.Field == f.Field {
					p.Below(2, "unlike the profile: "+string(d.Profile))
				}
			}
		}
		section("Proposed profile")
		if err := errors.Join(p.Flush(), output.JSON(w, r.Proposal)); err != nil {
			return err
		}
	}
	if len(r.Leftovers) > 0 { // at the end, where they are visible
		section("Not released")
	}
	for _, l := range r.Leftovers {
		p.Line(l.ContainerID + ": " + l.Reason)
		p.Line(fmt.Sprintf("  run after %d s: %s", l.AfterSeconds, l.Command))
	}
	return p.Flush()
}
