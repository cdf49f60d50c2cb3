package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// allocateOptions are the flags of `allocate`.
type allocateOptions struct {
	clientFlags
	family, pool string
	expiration   bool
}

// allocateCommand is `allocate`.
func (p program) allocateCommand() *cobra.Command {
	o := &allocateOptions{}
	cmd := &cobra.Command{
		Use:   "allocate OWNER",
		Short: "Hand out the addresses of an owner",
		Long: `Hand out the addresses of an owner and print them, one per line.

An owner that already holds addresses gets the same ones again. Without --family
each family that the sidecar and the plugin have is handed out.`,
		Example: `  # Both families of the owner "router"
  delegated-ipam allocate router

  # The IPv4 address of a pod, out of the pool "blue", with everything the API answers
  delegated-ipam allocate kube-system/coredns-1 --family ipv4 --pool blue -o json`,
		Args: takes("OWNER"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.allocate(cmd, *o, args[0]) },
	}
	o.register(cmd, p.env)
	flags := cmd.Flags()
	flags.Var(option.Choice(&o.family, "ipv4", "ipv6"), "family", "the one address family to hand out; each that there is if not set")
	flags.Var(option.Text(&o.pool, "name"), "pool", `pool to take from (default "default")`)
	option.AddSwitch(flags, &o.expiration, "expiration",
		"take the addresses back unless they are confirmed in time (serve --ipam-expiration): by restore, or by allocate without this flag")
	return cmd
}

func (p program) allocate(cmd *cobra.Command, o allocateOptions, owner string) error {
	c := p.connect(o.clientFlags)
	answer, err := c.allocate(cmd.Context(), o, owner)
	if err != nil {
		return fmt.Errorf("allocate %s: %w", owner, err)
	}
	if o.output == outputJSON {
		return printJSON(cmd.OutOrStdout(), answer)
	}
	for _, ip := range []string{answer.Address.IPv4, answer.Address.IPv6} {
		if ip != "" {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), ip); err != nil {
				return fmt.Errorf("allocate %s: what it holds could not be printed: %w", owner, err)
			}
		}
	}
	return nil
}

func (c connection) allocate(ctx context.Context, o allocateOptions, owner string) (*models.IPAMResponse, error) {
	api, err := c.client()
	if err != nil {
		return nil, err
	}
	answer, err := api.Allocate(ctx, owner, client.AllocateOptions{Family: client.Family(o.family), Pool: o.pool, Expiration: o.expiration})
	if err != nil {
		return nil, c.explain(ctx, err, meanings{http.StatusForbidden: notAdmitted(owner)})
	}
	return decode[models.IPAMResponse](answer.Raw)
}

// notAdmitted is what 403 means to who asks for an owner.
func notAdmitted(owner string) string {
	return fmt.Sprintf("not admitted: either --owners of the sidecar does not admit owner %q, or --allow-uids and --allow-gids do not let this user call", owner)
}
