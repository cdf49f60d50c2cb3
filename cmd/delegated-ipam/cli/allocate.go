package cli

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

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
an address of each family that the daemon and the plugin have is allocated.`,
		Example: `  # Both families of the owner "router"
  delegated-ipam allocate router

  # The IPv4 address of a pod from the pool "blue", with all that the API returns
  delegated-ipam allocate kube-system/coredns-1 --family ipv4 --pool blue -o json`,
		Args:              args("OWNER"),
		RunE:              d.connected(&o.clientFlags, o.run),
		ValidArgsFunction: d.completeListed(owners),
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

func (o *allocateOptions) run(cmd *cobra.Command, c connection, args []string) error {
	allocated, err := c.Allocate(cmd.Context(), args[0], client.AllocateOptions{Family: o.family, Pool: o.pool, Expiration: o.expiration})
	if err != nil {
		return fmt.Errorf("allocate: %w", c.explain(cmd.Context(), err))
	}
	ips := slices.DeleteFunc([]string{allocated.Address.IPv4, allocated.Address.IPv6}, func(ip string) bool { return ip == "" })
	if err := o.printOutcome(cmd.OutOrStdout(), allocated, ips...); err != nil {
		return fmt.Errorf("allocate: the addresses of %s could not be printed: %w", args[0], err)
	}
	return nil
}

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
		Args:              args("IP", "OWNER"),
		RunE:              d.connected(&o.clientFlags, o.run),
		ValidArgsFunction: d.completeListed(allocatedAddresses, owners),
	}
	o.register(cmd, d.env, poolOption(&o.pool, "pool of the address"),
		options.Option{Name: "also", Value: options.Address(&o.also, "an IP address"), Help: "address of the other family that the owner had, to request both at once"})
	return cmd
}

func (o *restoreOptions) run(cmd *cobra.Command, c connection, args []string) error {
	ip, owner := args[0], args[1]
	address, _ := netip.ParseAddr(ip) // was checked (args)
	if err := c.Restore(cmd.Context(), address, owner, client.RestoreOptions{Pool: o.pool, Also: o.also}); err != nil {
		return fmt.Errorf("restore %s: %w", ip, c.explain(cmd.Context(), err))
	}
	return o.printOutcome(cmd.OutOrStdout(), restored{ip, owner, poolName(o.pool)}, fmt.Sprintf("restored %s for %s", ip, owner))
}
