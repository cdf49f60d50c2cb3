package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/client/ipam"
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
	params := ipam.NewPostIpamParams().WithTimeout(c.limit).WithOwner(&owner).
		WithFamily(given(o.family)).WithPool(given(o.pool))
	if o.expiration {
		params.SetExpiration(&o.expiration)
	}
	ok, err := c.Ipam.PostIpamContext(ctx, params)
	if err != nil {
		return nil, c.explain(ctx, err, meanings{http.StatusForbidden: notAdmitted(owner)})
	}
	if ok.Payload.Address == nil {
		return nil, fmt.Errorf("the sidecar at %s answered without an address; is it one of this version?", c.socket)
	}
	return ok.Payload, nil
}

// given is a parameter that is left out if it is empty.
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// notAdmitted is what 403 means to who asks for an owner.
func notAdmitted(owner string) string {
	return fmt.Sprintf("not admitted: either --owners of the sidecar does not admit owner %q, or --allow-uids and --allow-gids do not let this user call", owner)
}
