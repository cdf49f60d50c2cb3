package cli

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/audit"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

func (d dependencies) holderCommand() *cobra.Command {
	var ips []netip.Addr
	o, flags := options.NewCluster()
	return withOptions(flags, &cobra.Command{
		Use:   "holder IP...",
		Short: "Find the node that holds an address",
		Long: `Read all CiliumNodes and Nodes once, and report for each address the node that has it in
its pool or uses it: the slot (the daemon's owner), what uses it, such as NAMESPACE/NAME of
a pod, and the state of its release. If none has it, the Node whose pod CIDR contains it.

STATE is held (one node), not-held (none), or conflict: it is in several pools, or a node
uses it that does not have it in its pool.

Nothing is changed. It needs the right to list ciliumnodes and nodes (the ClusterRole
delegated-ipam-audit).

Exit status: 0 each address is held by one node; 1 failed, holders unknown; 2 wrong
usage; 3 there is a conflict; 4 no conflict, and an address is not held.`,
		Example: `  delegated-ipam-bridge holder 10.1.2.3
  delegated-ipam-bridge holder 10.1.2.3 fd00::1:3 -o json | jq -r '.[].holders[].usedBy'`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			ips, err = parseAddresses(args)
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, found, err := d.readNodes(cmd, o, ips...)
			if err != nil {
				return err
			}
			answers := found.Answers()
			if err := output.Print(cmd.OutOrStdout(), o.Output, answers, func(t output.Table) { printAnswers(t, answers) }); err != nil {
				return err
			}
			return judge(answers)
		},
	})
}

func parseAddresses(args []string) ([]netip.Addr, error) {
	if len(args) == 0 {
		return nil, cmdline.Usagef("IP is missing; expected IP...")
	}
	var ips []netip.Addr
	for _, text := range args {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, cmdline.Usagef("IP is %q; expected an IPv4 or IPv6 address without a prefix length", text)
		}
		ips = append(ips, ip)
	}
	return ips, nil
}

func judge(answers []audit.Answer) error {
	count := map[audit.State]int{}
	for _, a := range answers {
		count[a.State]++
	}
	if n := count[audit.Conflict]; n > 0 {
		return &cmdline.ExitError{Code: exitFindings, Err: fmt.Errorf("holder: %d of %d addresses are in conflict", n, len(answers))}
	}
	if n := count[audit.Free]; n > 0 {
		return &cmdline.ExitError{Code: exitFree, Err: fmt.Errorf("holder: %d of %d addresses are not held", n, len(answers))}
	}
	return nil
}

func printAnswers(t output.Table, answers []audit.Answer) {
	t.Row("ADDRESS", "STATE", "NODE", "SLOT", "USED BY", "NOTE")
	for _, a := range answers {
		for _, h := range a.Holders {
			t.Row(a.Address.String(), string(a.State), h.Node, h.Slot, usedBy(h), h.Note())
		}
		if len(a.Holders) == 0 {
			t.Row(a.Address.String(), string(a.State), "", "", "", whereFree(a))
		}
	}
}

func usedBy(h audit.Holder) string {
	if h.Used && h.UsedBy == "" {
		return "unknown"
	}
	return h.UsedBy
}

// whereFree describes the Nodes whose pod CIDRs contain an unused address.
func whereFree(a audit.Answer) string {
	if len(a.PodCIDRs) == 0 {
		return "in no pool, and in no pod CIDR of a Node"
	}
	var all []string
	for _, r := range a.PodCIDRs {
		all = append(all, r.CIDR+" of "+r.Node)
	}
	return "in no pool; in the pod CIDR " + strings.Join(all, ", ")
}
