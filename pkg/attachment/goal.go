package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// goal is what an acquisition is for.
type goal struct {
	// prefer are addresses to ask for first; owed are those of them that count.
	prefer, owed []netip.Addr
	// must are addresses without which a result is given back.
	must []netip.Addr
	// skip is how many of the requests have been tried.
	skip int
	// repeated is how often a request was repeated.
	repeated int
	// known are addresses of which the subnet is known, from what was held before.
	known []call.Address
	// families are to be claimed; with any set, those of them that came.
	families []record.Family
	any      bool
	// expire asks for a hand-out that must be confirmed.
	expire bool
}

// requests are what to ask for, one set after the other; nil asks for any. What
// the plugin cannot be asked for is left out: it may come all the same. Of several
// that are owed each is asked for alone before all are given up: one that somebody
// else has, or that CNI_ARGS cannot carry beside another, is no reason to lose the other.
func (g goal) requests(c call.Invocation) [][]netip.Addr {
	candidates := [][]netip.Addr{g.prefer, g.owed}
	for _, ip := range g.owed {
		candidates = append(candidates, []netip.Addr{ip})
	}
	var sets [][]netip.Addr
	for _, set := range append(candidates, g.must) {
		same := func(o []netip.Addr) bool { return slices.Equal(o, set) }
		if canAskFor(c, set) && !slices.ContainsFunc(sets, same) {
			sets = append(sets, set)
		}
	}
	if len(g.must) == 0 || !canAskFor(c, g.must) {
		sets = append(sets, nil)
	}
	return sets[min(g.skip, len(sets)-1):]
}

// mostRepeats bounds how often an acquisition repeats a request.
const mostRepeats = 3

// repeats reports whether the same addresses are requested again: they can be had, but
// another attachment has an address that came beside them. A plugin that goes on from its
// last address, as host-local does, returns another one next time.
func (g *goal) repeats(err error) bool {
	var d *duplicate
	if !errors.As(err, &d) || !d.avoidable || g.repeated == mostRepeats {
		return false
	}
	g.repeated++
	return true
}

// canAskFor tells whether an ADD with the context can ask for all the addresses.
func canAskFor(c call.Invocation, ips []netip.Addr) bool {
	_, err := c.Convention(len(ips))
	return err == nil && len(ips) > 0
}

// request writes addresses with the length of their subnet, as far as it is known.
func (g goal) request(ips []netip.Addr) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, ip := range ips {
		prefix := netip.PrefixFrom(ip, ip.BitLen())
		for _, a := range g.known {
			if a.Addr() == ip {
				prefix = a.Prefix
			}
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes
}

// accepts returns the families to claim of a result, or why it is not what was
// asked for: an address that was asked for or must be there is missing, or one too
// many of a family came with it.
func (g goal) accepts(res call.Result, asked []netip.Prefix) ([]record.Family, error) {
	came := addrs(res.Addresses)
	wanted := slices.Clone(g.must) // also what could not be asked for
	for _, p := range asked {
		wanted = append(wanted, p.Addr())
	}
	for _, ip := range wanted {
		if !slices.Contains(came, ip) {
			return nil, fmt.Errorf("asked the plugin for %s; it returned %v instead", ip, came)
		}
	}
	for _, p := range asked {
		if extra, ok := beside(p.Addr(), came, asked); ok {
			return nil, fmt.Errorf("asked the plugin for %s; it returned %v, with %s too many", p.Addr(), came, extra)
		}
	}
	return g.choose(res.Addresses)
}

// beside returns an address of the same family that came with ip unasked.
func beside(ip netip.Addr, came []netip.Addr, asked []netip.Prefix) (netip.Addr, bool) {
	for _, other := range came {
		wanted := slices.ContainsFunc(asked, func(p netip.Prefix) bool { return p.Addr() == other })
		if !wanted && record.FamilyOf(other) == record.FamilyOf(ip) {
			return other, true
		}
	}
	return netip.Addr{}, false
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
	return nil, fmt.Errorf("%v is wanted of the plugin; what it gave is %v: its configuration had no range of that family then", g.families, addrs(addresses))
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

// answeredLast puts what was answered before behind the other addresses: of
// several of one family the last one is answered, whatever their order is now.
func answeredLast(res call.Result, before record.Record) call.Result {
	answered := func(a call.Address) bool {
		b, ok := before.Address(record.FamilyOf(a.Addr()))
		return ok && a.Addr() == b.Addr()
	}
	var first, last []call.Address
	for _, a := range res.Addresses {
		if answered(a) {
			last = append(last, a)
		} else {
			first = append(first, a)
		}
	}
	res.Addresses = append(first, last...)
	return res
}
