package cli

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func (d dependencies) allocateCommand() *cobra.Command {
	var f clientFlags
	var o client.AllocateOptions
	return d.connected(&cobra.Command{
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
		ValidArgsFunction: d.completeListed(owners),
	}, &f, func(cmd *cobra.Command, c connection, args []string) error {
		allocated, err := c.Allocate(cmd.Context(), args[0], o)
		if err != nil {
			return fmt.Errorf("allocate: %w", c.explain(cmd.Context(), err))
		}
		ips := slices.DeleteFunc([]string{allocated.Address.IPv4, allocated.Address.IPv6}, func(ip string) bool { return ip == "" })
		if err := f.printOutcome(cmd.OutOrStdout(), allocated, ips...); err != nil {
			return fmt.Errorf("allocate: the addresses of %s could not be printed: %w", args[0], err)
		}
		return nil
	},
		options.Option{Name: "family", Value: options.Choice(&o.Family, "ipv4", "ipv6"), Help: "address family to allocate (empty = every family of the pool)"},
		poolOption(&o.Pool, "pool to allocate from"),
		options.Option{
			Name: "expiration", Value: options.Bool(&o.Expiration),
			Help: "release the addresses unless they are confirmed in time (serve --ipam-expiration): by restore, or by allocate without this flag",
		})
}

func (d dependencies) restoreCommand() *cobra.Command {
	var f clientFlags
	var o client.RestoreOptions
	return d.connected(&cobra.Command{
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
		ValidArgsFunction: d.completeListed(allocatedAddresses, owners),
	}, &f, func(cmd *cobra.Command, c connection, args []string) error {
		ip, owner := args[0], args[1]
		address, _ := netip.ParseAddr(ip) // was checked (args)
		if err := c.Restore(cmd.Context(), address, owner, o); err != nil {
			return fmt.Errorf("restore %s: %w", ip, c.explain(cmd.Context(), err))
		}
		restored := map[string]string{"ip": ip, "owner": owner, "pool": poolName(o.Pool)}
		return f.printOutcome(cmd.OutOrStdout(), restored, fmt.Sprintf("restored %s for %s", ip, owner))
	},
		poolOption(&o.Pool, "pool of the address"),
		options.Option{Name: "also", Value: options.Address(&o.Also, "an IP address"), Help: "address of the other family that the owner had, to request both at once"})
}
