package cli

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/history"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/ownermatch"
)

func (d dependencies) historyCommand() *cobra.Command {
	var format string
	return d.onStateDir(&cobra.Command{
		Use:   "history [IP | OWNER]",
		Short: "Show which address was given to whom and freed when",
		Long: `Show what happened to addresses, the oldest first: of all, of one address, or of the owners
or pods that match a pattern, in which "*" stands for any text. The daemon need not run.

  allocated  the plugin has allocated them to the owner
  released   a client has released them, and the cooldown begins (serve --release-delay)
  freed      the plugin has them back
  lost       the plugin does not hold them any more, and the owner may still use them

The log in the state directory has the last 4 to 8 MiB of events, some ten thousand. A full
disk or a power loss may take some. Leases that the plugin has made for other clients than
the daemon are not in it.`,
		Example: `  delegated-ipam history 10.15.0.2

  # Of the pods of a namespace
  delegated-ipam history 'kube-system/*' -o json`,
		Args: func(cmd *cobra.Command, given []string) error {
			return cmdline.Usage(cobra.MaximumNArgs(1)(cmd, given))
		},
	}, func(cmd *cobra.Command, stateDir string, given []string) error {
		matches, err := eventFilter(given)
		if err != nil {
			return err
		}
		all, err := history.Read(stateDir)
		if err != nil {
			return fmt.Errorf("history: %w", err)
		}
		all = slices.DeleteFunc(append([]history.Event{}, all...), func(e history.Event) bool { return !matches(e) })
		return output.Print(cmd.OutOrStdout(), format, all, func(t output.Table) { printEvents(t, all) })
	}, options.Output(&format))
}

// eventFilter returns the condition of the argument, an address or a pattern; every event without one.
func eventFilter(given []string) (func(history.Event) bool, error) {
	if len(given) == 0 {
		return func(history.Event) bool { return true }, nil
	}
	if ip, err := netip.ParseAddr(given[0]); err == nil {
		return func(e history.Event) bool { return slices.Contains(e.Addresses, ip.Unmap()) }, nil
	}
	if _, err := netip.ParsePrefix(given[0]); err == nil {
		return nil, args("IP")(nil, given)
	}
	owners, err := ownermatch.Parse(given)
	if err != nil {
		return nil, cmdline.Usagef("OWNER: %w", err)
	}
	return func(e history.Event) bool { return owners.Match(e.Owner) || e.Pod != "" && owners.Match(e.Pod) }, nil
}

// printEvents prints a table that fits output.Width. Long addresses are below the owner.
func printEvents(t output.Table, all []history.Event) {
	t.Row("TIME", "EVENT", "OWNER", "ADDRESSES")
	for _, e := range all {
		owner := cmp.Or(e.Owner, "lease "+e.ContainerID)
		if e.Pod != "" {
			owner = "pod " + e.Pod
		}
		var ips []string
		for _, ip := range e.Addresses {
			ips = append(ips, ip.String())
		}
		short, below := "(below)", shortLines(ips)
		if len(below) == 1 {
			short, below = below[0], nil
		}
		t.Row(e.Time.UTC().Format(time.RFC3339), string(e.Event), owner, short)
		for _, ip := range below {
			t.Below(2, ip)
		}
	}
	t.Shrink(2, minOwner)
}
