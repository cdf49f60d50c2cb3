package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// listCommand is `list`.
func (p program) listCommand() *cobra.Command {
	f := &clientFlags{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List every attachment",
		Long: `List every attachment: what one owner holds in one pool's network.

  STATE      adding     the plugin is asked, or was asked and may have allocated
             held       the plugin holds the addresses for the owner
             cooldown    released; the plugin gets them back later
             releasing  the plugin is to get them back, and has not confirmed it
  ADDRESSES  everything the plugin gave
  CLAIMS     the families that are handed out
  AGE        time since it was made
  NOTE       what else there is to know: lost, expiry, last failure`,
		Example: `  delegated-ipam list

  # The container IDs of everything that waits for the plugin
  delegated-ipam list -o json | jq -r '.[] | select(.state == "releasing") | ."container-id"'`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := p.connect(*f).list(cmd.Context())
			if err != nil {
				return fmt.Errorf("list: %w", err)
			}
			if f.output == outputJSON {
				return printJSON(cmd.OutOrStdout(), all)
			}
			return printAttachments(cmd.OutOrStdout(), all, p.now())
		},
	}
	f.register(cmd, p.env)
	return cmd
}

func (c connection) list(ctx context.Context) ([]*models.Attachment, error) {
	api, err := c.client()
	if err != nil {
		return nil, err
	}
	listed, err := api.List(ctx)
	switch {
	case errors.Is(err, client.ErrNotSidecar):
		return nil, fmt.Errorf("%s is no socket of delegated-ipam: it has no list of attachments (cilium-agent's own has none)", c.socket)
	case err != nil:
		return nil, c.explain(ctx, err, meanings{http.StatusForbidden: callerRefused})
	}
	all := make([]*models.Attachment, 0, len(listed))
	for _, a := range listed {
		m, err := decode[models.Attachment](a.Raw)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// printAttachments prints a table, by pool and owner.
func printAttachments(w io.Writer, all []*models.Attachment, now time.Time) error {
	t := newTable(w)
	t.row("OWNER", "POOL", "STATE", "ADDRESSES", "CLAIMS", "AGE", "CONTAINER-ID", "NOTE")
	for _, a := range byPoolAndOwner(all) {
		t.row(a.Owner, a.Pool, a.State, addresses(a), strings.Join(a.Claims, ","), length(now.Sub(time.Time(a.Created))), a.ContainerID, note(a, now))
	}
	return t.flush()
}

func byPoolAndOwner(all []*models.Attachment) []*models.Attachment {
	return slices.SortedFunc(slices.Values(all), func(a, b *models.Attachment) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ContainerID, b.ContainerID))
	})
}

func addresses(a *models.Attachment) string {
	var ips []string
	for _, at := range a.Addresses {
		ips = append(ips, at.IP)
	}
	return strings.Join(ips, ",")
}

// note is what is unusual about an attachment.
func note(a *models.Attachment, now time.Time) string {
	var out []string
	if a.Lost {
		out = append(out, "lost: the plugin does not hold it any more")
	}
	if a.Expiration != nil {
		out = append(out, "expires in "+length(time.Time(a.Expiration.Deadline).Sub(now)))
	}
	if a.ReleaseAt != nil {
		out = append(out, "given back in "+length(time.Time(*a.ReleaseAt).Sub(now)))
	}
	if a.LastError != "" {
		out = append(out, oneLine(a.LastError))
	}
	return strings.Join(out, "; ")
}
