package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// restoreOptions are the flags of `restore`.
type restoreOptions struct {
	clientFlags
	pool string
	also netip.Addr
}

// restored is the output of `restore -o json`.
type restored struct {
	IP    string `json:"ip"`
	Owner string `json:"owner"`
	Pool  string `json:"pool"`
}

func (d dependencies) restoreCommand() *cobra.Command {
	o := &restoreOptions{}
	cmd := &cobra.Command{
		Use:   "restore IP OWNER",
		Short: "Allocate a given address to an owner",
		Long: `Allocate exactly this address to an owner, or fail.

It succeeds if the owner holds the address already, or if the plugin can still
allocate this address. Any other address that the plugin returns instead is released.
IP has no prefix length.

If the owner held an address of each family, give the other one with --also and
then restore it, too: a plugin that is asked for one address returns any of the
other family.`,
		Example: `  # The address that the router had before
  delegated-ipam restore 10.15.0.2 router

  # Both addresses that the router had before
  delegated-ipam restore 10.15.0.2 router --also=fd00:15::2
  delegated-ipam restore fd00:15::2 router`,
		Args: args("IP", "OWNER"),
		RunE: func(cmd *cobra.Command, args []string) error { return d.restore(cmd, *o, args[0], args[1]) },
	}
	o.register(cmd, d.env, poolOption(&o.pool, "pool of the address"),
		options.Option{Name: "also", Value: options.Address(&o.also, "an IP address"), Help: "address of the other family that the owner had, to request both at once"})
	return cmd
}

func (d dependencies) restore(cmd *cobra.Command, o restoreOptions, ip, owner string) error {
	if err := d.connect(o.clientFlags).restore(cmd.Context(), o, ip, owner); err != nil {
		return fmt.Errorf("restore %s: %w", ip, err)
	}
	return o.printOutcome(cmd.OutOrStdout(), restored{ip, owner, poolName(o.pool)}, fmt.Sprintf("restored %s for %s", ip, owner))
}

func (c connection) restore(ctx context.Context, o restoreOptions, ip, owner string) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	// The argument was checked before (args).
	address, _ := netip.ParseAddr(ip)
	return c.explain(ctx, api.Restore(ctx, address, owner, client.RestoreOptions{Pool: o.pool, Also: o.also}), codeHelp{
		http.StatusBadRequest:     notAnAddress(ip),
		http.StatusForbidden:      ownerRejected(owner),
		http.StatusConflict:       fmt.Sprintf("address %s of pool %q belongs to another owner, which `delegated-ipam list` shows", ip, poolName(o.pool)),
		http.StatusNotImplemented: familyDisabled(ip),
	})
}
