package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// allocateOptions are the flags of `allocate`.
type allocateOptions struct {
	clientFlags
	family, pool string
	expiration   bool
}

func (d dependencies) allocateCommand() *cobra.Command {
	o := &allocateOptions{}
	cmd := &cobra.Command{
		Use:   "allocate OWNER",
		Short: "Allocate the addresses of an owner",
		Long: `Allocate the addresses of an owner and print them, one per line.

An owner that already holds addresses gets the same ones again. Without --family
an address of each family that the sidecar and the plugin have is allocated.`,
		Example: `  # Both families of the owner "router"
  delegated-ipam allocate router

  # The IPv4 address of a pod from the pool "blue", with all that the API returns
  delegated-ipam allocate kube-system/coredns-1 --family ipv4 --pool blue -o json`,
		Args: args("OWNER"),
		RunE: func(cmd *cobra.Command, args []string) error { return d.allocate(cmd, *o, args[0]) },
	}
	o.register(cmd, d.env,
		options.Option{Name: "family", Value: options.Choice(&o.family, "ipv4", "ipv6"), Help: "address family to allocate (empty = every family of the pool)"},
		poolOption(&o.pool, "pool to allocate from"),
		options.Option{
			Name: "expiration", Value: options.Bool(&o.expiration),
			Help: "release the addresses unless they are confirmed in time (serve --ipam-expiration): by restore, or by allocate without this flag",
		})
	return cmd
}

func (d dependencies) allocate(cmd *cobra.Command, o allocateOptions, owner string) error {
	c := d.connect(o.clientFlags)
	allocated, err := c.allocate(cmd.Context(), o, owner)
	if err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	if o.output == outputJSON {
		return output.JSON(cmd.OutOrStdout(), allocated)
	}
	for _, ip := range []string{allocated.Address.IPv4, allocated.Address.IPv6} {
		if ip != "" {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), ip); err != nil {
				return fmt.Errorf("allocate: the addresses of %s could not be printed: %w", owner, err)
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
	allocated, err := api.Allocate(ctx, owner, client.AllocateOptions{Family: client.Family(o.family), Pool: o.pool, Expiration: o.expiration})
	if err != nil {
		return nil, c.explain(ctx, err, codeHelp{http.StatusForbidden: ownerRejected(owner)})
	}
	return decode[models.IPAMResponse](allocated.Raw)
}
