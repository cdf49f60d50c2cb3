package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// listOptions are the flags of `list`.
type listOptions struct {
	clientFlags
	summary bool
}

func (d dependencies) listCommand() *cobra.Command {
	o := &listOptions{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List every attachment",
		Long: `List every attachment: the addresses of one owner in the network of one pool.

  STATE      adding     an ADD runs, or was interrupted and may have allocated
             held       the plugin holds the addresses for the owner
             cooldown   released; the plugin releases the addresses later
             releasing  the DEL of the plugin has not succeeded yet
  ADDRESSES  all addresses that the plugin returned
  CLAIMS     the families that a client has allocated
  AGE        time since the attachment was created
  NOTE       lost, expiration, cooldown and the last error, if any

Below the table, and alone with --summary, are the used and free addresses of each pool.
Used are all that the plugin has allocated, also to others. If its ranges are not known they
are those of the attachments. With -o json they need --summary.`,
		Example: `  delegated-ipam list

  # Used, free and total addresses of each pool
  delegated-ipam list --summary

  # The container IDs of all that waits for the plugin
  delegated-ipam list -o json | jq -r '.[] | select(.state == "releasing") | ."container-id"'`,
		Args: args(),
		RunE: d.connected(&o.clientFlags, func(cmd *cobra.Command, c connection, _ []string) error {
			if o.summary {
				return c.summarize(cmd, o.clientFlags)
			}
			all, err := c.list(cmd.Context())
			if err != nil {
				return fmt.Errorf("list: %w", err)
			}
			if o.output == options.OutputJSON {
				return output.JSON(cmd.OutOrStdout(), all)
			}
			err = printAttachments(cmd.OutOrStdout(), all, d.now(), "CONTAINER-ID", "NOTE",
				func(a *models.Attachment) (string, string) { return a.ContainerID, note(a, d.now()) })
			if status, healthErr := c.health(cmd.Context()); healthErr == nil && err == nil {
				err = printAddresses(cmd.OutOrStdout(), status.DelegatedIpam.Pools)
			}
			return err
		}),
	}
	o.register(cmd, d.env, options.Option{Name: "summary", Value: options.Bool(&o.summary), Help: "show the addresses of each pool, and no attachment"})
	return cmd
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
	t := output.NewTable(cmd.OutOrStdout())
	t.Row("POOL", "FAMILY", "USED", "FREE", "TOTAL")
	for _, p := range status.DelegatedIpam.Pools {
		all = append(all, poolSummary{p.Pool, append([]*models.PoolAddresses{}, p.Addresses...)})
		for _, a := range p.Addresses {
			t.Row(p.Pool, familyNames[a.Family], number(a.Used), numberOrUnknown(a.Free), numberOrUnknown(a.Total))
		}
		if len(p.Addresses) == 0 { // it has no usable configuration
			t.Row(p.Pool, "", "unknown", "unknown", "unknown")
		}
	}
	if f.output == options.OutputJSON {
		return output.JSON(cmd.OutOrStdout(), all)
	}
	return t.Flush()
}

func numberOrUnknown(n *float64) string {
	if n == nil {
		return "unknown"
	}
	return number(*n)
}

// printAttachments prints a table, sorted by pool and owner, with two more columns at the end.
func printAttachments(w io.Writer, all []*models.Attachment, now time.Time, name1, name2 string, last func(*models.Attachment) (string, string)) error {
	t := output.NewTable(w)
	t.Row("OWNER", "POOL", "STATE", "ADDRESSES", "CLAIMS", "AGE", name1, name2)
	slices.SortFunc(all, func(a, b *models.Attachment) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ContainerID, b.ContainerID))
	})
	for _, a := range all {
		var ips []string
		for _, at := range a.Addresses {
			ips = append(ips, at.IP)
		}
		cell1, cell2 := last(a)
		t.Row(a.Owner, a.Pool, a.State, strings.Join(ips, ","), strings.Join(a.Claims, ","), output.Duration(now.Sub(time.Time(a.Created))), cell1, cell2)
	}
	return t.Flush()
}

// printAddresses prints the use of the addresses of each pool, where it is known.
func printAddresses(w io.Writer, pools []*models.PoolStatus) error {
	t := output.NewTable(w)
	pools = slices.DeleteFunc(pools, func(p *models.PoolStatus) bool { return len(p.Addresses) == 0 })
	if len(pools) > 0 {
		t.Line("")
	}
	for _, p := range pools {
		t.Line("Pool " + p.Pool + ": " + addresses(p.Addresses))
	}
	return t.Flush()
}

// note returns the unusual properties of an attachment.
func note(a *models.Attachment, now time.Time) string {
	var out []string
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
