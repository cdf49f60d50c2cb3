package attachment

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// goal is what an acquisition is for.
type goal struct {
	// prefer are addresses to ask for first.
	prefer []netip.Addr
	// must are addresses without which a result is given back.
	must []netip.Addr
	// families are to be claimed; with any set, those of them that came.
	families []record.Family
	any      bool
	// expire asks for a hand-out that must be confirmed.
	expire bool
}

// requests are what to ask for, one set after the other; nil asks for any. What
// the plugin cannot be asked for is left out: it may come all the same.
func (g goal) requests(c call.Context) [][]netip.Addr {
	var sets [][]netip.Addr
	if !slices.Equal(g.prefer, g.must) && canAskFor(c, g.prefer) {
		sets = append(sets, g.prefer)
	}
	if canAskFor(c, g.must) {
		return append(sets, g.must)
	}
	return append(sets, nil)
}

// canAskFor tells whether an ADD with the context can ask for all the addresses.
func canAskFor(c call.Context, ips []netip.Addr) bool {
	_, ok := c.Convention(ips)
	return ok && len(ips) > 0
}

// accepts returns the families to claim of a result, or why it is not what was
// asked for.
func (g goal) accepts(res call.Result) ([]record.Family, error) {
	for _, ip := range g.must {
		if !slices.ContainsFunc(res.Addresses, func(a call.Address) bool { return a.Addr() == ip }) {
			return nil, fmt.Errorf("asked the plugin for %s; it returned %v instead", ip, addrs(res.Addresses))
		}
	}
	return g.choose(res.Addresses)
}

// choose returns the families to claim of the addresses that are there.
func (g goal) choose(addresses []call.Address) ([]record.Family, error) {
	var there []record.Family
	for _, f := range g.families {
		if slices.ContainsFunc(addresses, func(a call.Address) bool { return record.FamilyOf(a.Addr()) == f }) {
			there = append(there, f)
		}
	}
	if len(there) == len(g.families) || g.any && len(there) > 0 {
		return there, nil
	}
	return nil, fmt.Errorf("asked the plugin for %v; it returned %v: its configuration has no range of that family", g.families, addrs(addresses))
}

// addrs are the bare addresses.
func addrs(list []call.Address) []netip.Addr {
	out := make([]netip.Addr, len(list))
	for i, a := range list {
		out[i] = a.Addr()
	}
	return out
}

// sameAddresses compares two results without regard to order.
func sameAddresses(a, b []call.Address) bool {
	x, y := addrs(a), addrs(b)
	slices.SortFunc(x, netip.Addr.Compare)
	slices.SortFunc(y, netip.Addr.Compare)
	return slices.Equal(x, y)
}
