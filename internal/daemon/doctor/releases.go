package doctor

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
)

// notLocal returns the addresses that are not local in the network namespace of a path. The error is
// why that is unknown, such as a missing CAP_SYS_ADMIN.
func notLocal(path string, ips []netip.Addr) ([]netip.Addr, error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE) // this thread is there only meanwhile
	if err != nil {
		return nil, err
	}
	defer h.Close()
	local := func(ip netip.Addr) bool {
		routes, err := h.RouteGet(ip.AsSlice()) // the error is that there is no route
		return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
	}
	return slices.DeleteFunc(slices.Clone(ips), local), nil
}

// releasesFromAddress reports whether DEL of the pool's plugin sends the release of an address from it
// (docs/reference/profiles.md, Profile fields, releaseFromAddress).
func (p pool) releasesFromAddress() bool {
	return p.confErr == nil && p.plugin.Profile.ReleaseFromAddress && p.plugin.NetNS != ""
}

// checkReleases checks that CNI_NETNS can send from each IPv4 address that the pool holds. Pods are left out: DEL runs in
// their own namespaces, which have the addresses.
func checkReleases(o *Observations, p pool, r *report) {
	var held []netip.Addr
	for _, a := range o.Before {
		for _, at := range a.Addresses {
			ip, err := netip.ParseAddr(at.IP)
			if err == nil && ip.Is4() && a.Pool == p.name && !attachment.OfContainer(a.Owner) {
				held = append(held, ip)
			}
		}
	}
	ns := p.plugin.NetNS
	if len(held) == 0 {
		r.ok("DEL needs each address to be local in %s, which is checked once one is held", ns)
		return
	}
	switch missing, err := notLocal(ns, held); {
	case err != nil:
		r.ok("DEL needs each address to be local in %s, which was not checked: %s; entering it needs CAP_SYS_ADMIN: run doctor as root on the host", ns, err)
	case len(missing) > 0:
		r.warn("make the server's range local there, without ARP for it (docs/reference/plugins.md, dhcp); dhcp before v1.10.0 does not need it",
			"%d of %d held addresses are not local in %s, such as %s: the DHCP server does not learn of a release, and the lease stays there until it expires", len(missing), len(held), ns, missing[0])
	default:
		r.ok("all %d held addresses are local in %s, so that DEL can release them", len(held), ns)
	}
}
