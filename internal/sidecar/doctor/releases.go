package doctor

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
)

// releases is whether DEL can send the release of each held address from that address
// (docs/reference/profiles.md, Profile fields, releaseFromAddress).
type releases struct {
	// held are the pool's IPv4 addresses, and notLocal those that are not local in CNI_NETNS; err is
	// why the latter is unknown.
	held, notLocal []netip.Addr
	err            error
}

// collectReleases finds out from which of a pool's addresses CNI_NETNS can send. Pods are left out:
// DEL runs in their own namespaces, which have the addresses.
func (p *pool) collectReleases(list []*models.Attachment) {
	if !p.plugin.Profile.ReleaseFromAddress || p.plugin.NetNS == "" {
		return
	}
	r := &releases{}
	p.releases = r
	for _, a := range list {
		for _, at := range a.Addresses {
			ip, err := netip.ParseAddr(at.IP)
			if err == nil && ip.Is4() && a.Pool == p.name && !attachment.OfContainer(a.Owner) {
				r.held = append(r.held, ip)
			}
		}
	}
	if len(r.held) > 0 {
		r.notLocal, r.err = notLocal(p.plugin.NetNS, r.held)
	}
}

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

// releasesFromAddress reports whether DEL of the pool's plugin needs an address in CNI_NETNS.
func (p pool) releasesFromAddress() bool { return p.releases != nil }

// checkReleases checks that DEL can send the release of each held address.
func checkReleases(_ *Observations, p pool, r *report) {
	found, ns := p.releases, p.plugin.NetNS
	switch {
	case len(found.held) == 0:
		r.ok("DEL needs each address to be local in %s, which is checked once one is held", ns)
	case found.err != nil:
		r.ok("DEL needs each address to be local in %s, which was not checked: %s; entering it needs CAP_SYS_ADMIN: run doctor as root on the host", ns, found.err)
	case len(found.notLocal) > 0:
		r.warn("make the server's range local there, without ARP for it (docs/reference/plugins.md, dhcp); dhcp before v1.10.0 does not need it",
			"%d of %d held addresses are not local in %s, such as %s: the DHCP server does not learn of a release, and the lease stays there until it expires", len(found.notLocal), len(found.held), ns, found.notLocal[0])
	default:
		r.ok("all %d held addresses are local in %s, so that DEL can release them", len(found.held), ns)
	}
}
