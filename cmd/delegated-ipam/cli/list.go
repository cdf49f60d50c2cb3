package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/ownermatch"
)

// listOptions are the flags of `list`.
type listOptions struct {
	clientFlags
	owners         []string
	state, pool    string
	addresses      []netip.Prefix
	summary, watch bool
	patterns       ownermatch.Patterns // of owners
}

func (d dependencies) listCommand() *cobra.Command {
	o := &listOptions{clientFlags: clientFlags{formats: []string{options.OutputWide}}}
	return d.connected(&cobra.Command{
		Use:   "list",
		Short: "List every attachment",
		Long: `List every attachment, or those that match all conditions: the addresses of one owner
in the network of one pool.

  STATE      adding     an ADD runs, or was interrupted and may have allocated
             held       the plugin holds the addresses for the owner
             cooldown   released; the plugin releases the addresses later
             releasing  the DEL of the plugin has not succeeded yet
  AGE        time since the attachment was created
  ADDRESSES  all addresses that the plugin returned; below, if there is something to
             note: pod, lost, expiration, cooldown, last error

The table fits 80 columns: the middle of a longer owner is omitted, and POOL without a
second one. -o wide prints everything, CLAIMS (the families that a client has allocated)
and CONTAINER-ID too.

Below the table, and alone with --summary, are the used and free addresses of each pool.
Used are all that the plugin has allocated, also to others. If its ranges are not known they
are those of the attachments. With -o json they need --summary.

With --watch a line is printed for each attachment, and for each change, until the command
is interrupted.`,
		Example: `  delegated-ipam list

  # Used, free and total addresses of each pool
  delegated-ipam list --summary

  # Who has addresses of a range
  delegated-ipam list --address=10.15.0.128/25

  # The container IDs of all that waits for the plugin
  delegated-ipam list --state=releasing -o json | jq -r '.[]."container-id"'`,
		Args: args(),
	}, &o.clientFlags, func(cmd *cobra.Command, c connection, _ []string) (err error) {
		if o.summary && o.watch {
			return cmdline.Usagef("--summary and --watch are given; expected one of them")
		}
		if o.patterns, err = ownermatch.Parse(o.owners); err != nil {
			return cmdline.Usagef("--owner: %w", err)
		}
		switch {
		case o.summary:
			return c.summarize(cmd, o.clientFlags)
		case o.watch:
			return d.watch(cmd, c, *o)
		}
		return d.list(cmd, c, *o)
	},
		options.Option{Name: "owner", Value: options.Texts(&o.owners, "patterns"), Help: `list of patterns of owners or pods, where "*" matches any text (empty = every owner)`},
		options.Option{
			Name: "state", Help: "state of the attachments (empty = every state)",
			Value: options.Choice(&o.state, models.AttachmentStateAdding, models.AttachmentStateHeld, models.AttachmentStateCooldown, models.AttachmentStateReleasing),
		},
		options.Option{Name: "pool", Value: options.Text(&o.pool, "name"), Help: "pool of the attachments (empty = every pool)"},
		options.Option{Name: "address", Value: options.Addresses(&o.addresses), Help: "list of addresses and ranges, of which the attachments have one (empty = any)"},
		options.Option{Name: "summary", Value: options.Bool(&o.summary), Help: "show the addresses of each pool, and no attachment"},
		options.Option{Name: "watch", Value: options.Bool(&o.watch), Help: "print each change until the command is interrupted; with -o json as one object in each line"})
}

func (d dependencies) list(cmd *cobra.Command, c connection, o listOptions) error {
	all, err := c.matching(cmd.Context(), o)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	return output.Print(cmd.OutOrStdout(), o.output, all, func(t output.Table) {
		sortAttachments(all)
		if o.output == options.OutputWide {
			wide(t, all, d.now(), "CONTAINER-ID", "NOTE", func(a *models.Attachment) (string, string) { return a.ContainerID, note(a, d.now()) })
		} else {
			narrow(t, all, d.now())
		}
		if status, err := c.health(cmd.Context()); err == nil {
			usedAddresses(t, status.DelegatedIpam.Pools)
		}
	})
}

// matching lists the attachments that match all conditions.
func (c connection) matching(ctx context.Context, o listOptions) ([]*models.Attachment, error) {
	all, err := c.listPool(ctx, o.pool)
	return slices.DeleteFunc(all, func(a *models.Attachment) bool { return !o.matches(a) }), err
}

// matches reports whether an attachment matches all conditions but the pool.
func (o listOptions) matches(a *models.Attachment) bool {
	within := func(text string) bool {
		ip, err := netip.ParseAddr(text)
		return err == nil && slices.ContainsFunc(o.addresses, func(p netip.Prefix) bool { return p.Contains(ip) })
	}
	return (len(o.owners) == 0 || o.patterns.Match(a.Owner) || a.Pod != "" && o.patterns.Match(a.Pod)) &&
		(o.state == "" || a.State == o.state) &&
		(len(o.addresses) == 0 || slices.ContainsFunc(append(ips(a), a.GivenUp...), within))
}

// ips returns the addresses of an attachment.
func ips(a *models.Attachment) (all []string) {
	for _, at := range a.Addresses {
		all = append(all, at.IP)
	}
	return all
}

// poolSummary is a pool as `list --summary -o json` prints it.
type poolSummary struct {
	Pool      string                  `json:"pool"`
	Addresses []*models.PoolAddresses `json:"addresses"`
}

// summarize prints the use of the addresses of each pool.
func (c connection) summarize(cmd *cobra.Command, f clientFlags) error {
	status, err := c.health(cmd.Context())
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	all := []poolSummary{}
	for _, p := range status.DelegatedIpam.Pools {
		all = append(all, poolSummary{p.Pool, append([]*models.PoolAddresses{}, p.Addresses...)})
	}
	return output.Print(cmd.OutOrStdout(), f.output, all, func(t output.Table) {
		t.Row("POOL", "FAMILY", "USED", "FREE", "TOTAL")
		for _, p := range all {
			for _, a := range p.Addresses {
				t.Row(p.Pool, familyNames[a.Family], number(&a.Used), number(a.Free), number(a.Total))
			}
			if len(p.Addresses) == 0 { // it has no usable configuration
				t.Row(p.Pool, "", "unknown", "unknown", "unknown")
			}
		}
	})
}

// sortAttachments sorts by pool and owner.
func sortAttachments(all []*models.Attachment) {
	slices.SortFunc(all, func(a, b *models.Attachment) int {
		return cmp.Or(output.Natural(a.Pool, b.Pool), output.Natural(a.Owner, b.Owner), cmp.Compare(a.ContainerID, b.ContainerID))
	})
}

// wide prints attachments with two more columns at the end.
func wide(t output.Table, all []*models.Attachment, now time.Time, name1, name2 string, last func(*models.Attachment) (string, string)) {
	t.Row("OWNER", "POOL", "STATE", "ADDRESSES", "CLAIMS", "AGE", name1, name2)
	for _, a := range all {
		cell1, cell2 := last(a)
		t.Row(a.Owner, a.Pool, a.State, strings.Join(ips(a), ","), strings.Join(a.Claims, ","), age(a, now), cell1, cell2)
	}
}

func age(a *models.Attachment, now time.Time) string {
	return output.Duration(now.Sub(time.Time(a.Created)))
}

const (
	// minOwner and minPool are the least widths of owners and pools, and maxJoined is the longest line with two addresses.
	minOwner, minPool, maxJoined = 8, 6, 32
)

// shortLines returns addresses in one line if that is short.
func shortLines(ips []string) []string {
	if joined := strings.Join(ips, ","); len(joined) <= maxJoined {
		return []string{joined}
	}
	return ips
}

// narrow prints attachments in a table that fits output.Width, with the pool if there are several.
func narrow(t output.Table, all []*models.Attachment, now time.Time) {
	several := slices.ContainsFunc(all, func(a *models.Attachment) bool { return a.Pool != all[0].Pool })
	columns := 0
	row := func(owner, pool string, others ...string) {
		if several {
			others = slices.Insert(others, 0, pool)
		}
		columns = 1 + len(others)
		t.Row(slices.Insert(others, 0, owner)...)
	}
	row("OWNER", "POOL", "STATE", "AGE", "ADDRESSES")
	for _, a := range all {
		lines := shortLines(ips(a))
		row(a.Owner, a.Pool, a.State, age(a, now), lines[0])
		for _, line := range lines[1:] {
			t.Below(columns-1, line)
		}
		t.WrapBelow(columns-1, note(a, now))
	}
	t.Shrink(0, minOwner)
	if several {
		t.Shrink(1, minPool)
	}
}

// usedAddresses prints the use of the addresses of each pool, where it is known.
func usedAddresses(t output.Table, pools []*models.PoolStatus) {
	pools = slices.DeleteFunc(pools, func(p *models.PoolStatus) bool { return len(p.Addresses) == 0 })
	if len(pools) > 0 {
		t.Line("")
	}
	for _, p := range pools {
		for _, a := range p.Addresses {
			t.Line("Pool " + p.Pool + ": " + addresses([]*models.PoolAddresses{a}))
		}
	}
}

// note returns the unusual properties of an attachment.
func note(a *models.Attachment, now time.Time) string {
	var out []string
	if a.Pod != "" {
		out = append(out, "pod "+a.Pod)
	}
	if a.Lost {
		out = append(out, "lost: the plugin does not hold the addresses any more")
	}
	if a.Range == models.AttachmentRangeOutside {
		out = append(out, "outside the ranges of the present configuration")
	}
	if a.Expiration != nil {
		out = append(out, "expires in "+output.Duration(time.Time(a.Expiration.Deadline).Sub(now)))
	}
	if a.ReleaseAt != nil {
		out = append(out, "returned in "+output.Duration(time.Time(*a.ReleaseAt).Sub(now)))
	}
	if a.ActsUntil != nil {
		out = append(out, fmt.Sprintf("an ADD with an unknown outcome may act for %s", output.Duration(time.Time(*a.ActsUntil).Sub(now))))
	}
	if a.LastError != "" {
		out = append(out, a.LastError)
	}
	return strings.Join(out, "; ")
}
