package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// acquireRequest is what an acquisition must or should return.
type acquireRequest struct {
	// required are addresses without which a result is rejected.
	required []netip.Addr
	// preferred are addresses to request first; claimed are the ones of them that the owner
	// must get back if possible.
	preferred, claimed []netip.Addr
	// families are the families to claim; with anyFamily, those of them that the result has.
	families  []record.Family
	anyFamily bool
	// expires requests an allocation that must be confirmed.
	expires bool
	// known are previously held addresses, whose subnets are known.
	known []call.Address
	// hides reports whether an address that was not requested must not be allocated; nil for no
	// such address.
	hides func(netip.Addr) bool
	// tried counts the candidates that were requested, repeated the repetitions of one, and excluded
	// the results that were set aside. conflict is the address of the last conflict.
	tried, repeated, excluded int
	conflict                  netip.Addr
	// othersRan reports whether another acquisition has run since the last ADD began to be prepared;
	// await reports that the next ADD waits for the end of the others, and awaited is how long that
	// took so far.
	othersRan func() bool
	await     bool
	awaited   time.Duration
}

// candidates returns the sets of addresses to request, one ADD after the other; nil requests
// any. Sets that cannot be requested are left out. Of several claimed addresses
// each is also requested alone before all are lost: one that another owner has, or that
// CNI_ARGS cannot carry beside another, does not cost the owner the other.
func (r acquireRequest) candidates(c call.Invocation) [][]netip.Addr {
	candidates := [][]netip.Addr{r.preferred, r.claimed}
	for _, ip := range r.claimed {
		candidates = append(candidates, []netip.Addr{ip})
	}
	var sets [][]netip.Addr
	for _, set := range append(candidates, r.required) {
		same := func(o []netip.Addr) bool { return slices.Equal(o, set) }
		if canRequest(c, set) && !slices.ContainsFunc(sets, same) {
			sets = append(sets, set)
		}
	}
	if len(r.required) == 0 || !canRequest(c, r.required) {
		sets = append(sets, nil)
	}
	return sets[min(r.tried, len(sets)-1):]
}

// canRequest reports whether an ADD with the invocation can request all the addresses.
func canRequest(c call.Invocation, ips []netip.Addr) bool {
	_, err := c.Convention(len(ips))
	return err == nil && len(ips) > 0
}

// prefixes returns addresses with the length of their subnet, as far as it is known.
func (r acquireRequest) prefixes(ips []netip.Addr) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, ip := range ips {
		prefix := netip.PrefixFrom(ip, ip.BitLen())
		for _, a := range r.known {
			if a.Addr() == ip {
				prefix = a.Prefix
			}
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes
}

// accept returns the families of a result to claim, or why the result does not match the
// request: a requested or required address is missing, or an extra one of its family came
// with it.
func (r acquireRequest) accept(res call.Result, asked []netip.Prefix) ([]record.Family, error) {
	came := addrs(res.Addresses)
	for _, p := range asked {
		if !slices.Contains(came, p.Addr()) {
			return nil, fmt.Errorf("requested %s, plugin returned %v", p.Addr(), came)
		}
	}
	for _, ip := range r.required {
		if !slices.Contains(came, ip) {
			return nil, fmt.Errorf("%s is required, but cannot be requested from the plugin, which returned %v", ip, came)
		}
	}
	for _, p := range asked {
		if extra, ok := unrequested(p.Addr(), came, asked); ok {
			return nil, fmt.Errorf("requested %s, plugin returned %v, which has %s in addition", p.Addr(), came, extra)
		}
	}
	families, missing, err := r.familiesToClaim(res.Addresses)
	switch {
	case err != nil || len(missing) == 0:
		return families, err
	case len(asked) > 0: // of requested addresses, a plugin such as calico-ipam returns no other family
		return nil, fmt.Errorf("plugin returned %v for the request of %v, and no address of %v", came, asked, missing)
	}
	return nil, fmt.Errorf("plugin returned %v, and no address of %v: its configuration has no range of that family", came, missing)
}

// unrequested returns an address of the same family that came with ip without being requested.
func unrequested(ip netip.Addr, came []netip.Addr, asked []netip.Prefix) (netip.Addr, bool) {
	for _, other := range came {
		wanted := slices.ContainsFunc(asked, func(p netip.Prefix) bool { return p.Addr() == other })
		if !wanted && record.FamilyOf(other) == record.FamilyOf(ip) {
			return other, true
		}
	}
	return netip.Addr{}, false
}

// familiesToClaim returns the wanted families that the addresses have, and those that they lack.
func (r acquireRequest) familiesToClaim(addresses []call.Address) (there, missing []record.Family, err error) {
	var hidden []netip.Addr
	for _, f := range r.families {
		answered, ok := record.Record{Result: call.Result{Addresses: addresses}}.Address(f)
		switch {
		case ok && r.isHidden(answered.Addr()):
			hidden = append(hidden, answered.Addr())
		case ok:
			there = append(there, f)
		default:
			missing = append(missing, f)
		}
	}
	switch {
	case r.anyFamily && len(there) > 0:
		return there, nil, nil
	case len(hidden) > 0:
		return nil, missing, fmt.Errorf("%v is excluded (--exclude-addresses), so it is not allocated: release the attachment and allocate it again", hidden)
	}
	return there, missing, nil
}

// isHidden reports whether an address must not be allocated. A required one was accepted.
func (r acquireRequest) isHidden(ip netip.Addr) bool {
	return r.hides != nil && r.hides(ip) && !slices.Contains(r.required, ip)
}

// preferFound requests the addresses that the owner held before its journal was lost, beside
// the required ones and those that the request prefers already.
func (r *acquireRequest) preferFound(found []call.Address) {
	r.known = append(slices.Clone(r.known), found...)
	prefer := slices.Clone(r.required)
	for _, ip := range slices.Concat(r.preferred, addrs(found)) {
		same := func(other netip.Addr) bool { return record.FamilyOf(other) == record.FamilyOf(ip) }
		if !slices.ContainsFunc(prefer, same) {
			prefer = append(prefer, ip)
		}
	}
	r.preferred = prefer
}

// addrs returns the bare addresses.
func addrs(list []call.Address) []netip.Addr {
	out := make([]netip.Addr, len(list))
	for i, a := range list {
		out[i] = a.Addr()
	}
	return out
}

// sameAddresses compares two results regardless of order.
func sameAddresses(a, b []call.Address) bool {
	x, y := addrs(a), addrs(b)
	slices.SortFunc(x, netip.Addr.Compare)
	slices.SortFunc(y, netip.Addr.Compare)
	return slices.Equal(x, y)
}

// previousLast moves the previously returned addresses behind the others: of several addresses
// of a family the last one is returned to the owner, regardless of their order now.
func previousLast(res call.Result, before record.Record) call.Result {
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
