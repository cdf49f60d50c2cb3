package engine

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// want is what a request, or a reacquisition, wants from an acquisition.
type want struct {
	// required are addresses without which a result is rejected.
	required []netip.Addr
	// also is RestoreRequest.Also.
	also netip.Addr
	// preferred are addresses to request first; claimed are the ones of them that the owner
	// must get back if possible.
	preferred, claimed []netip.Addr
	// families are the families to claim; with anyFamily, the ones of them that the result has.
	families  []record.Family
	anyFamily bool
	// expires requests an allocation that must be confirmed.
	expires bool
}

// candidates returns the sets of addresses to request, one ADD after the other; nil requests any. Sets
// that cannot be requested are left out. If two addresses are claimed, each is then requested separately:
// the owner keeps one even if the other is taken, or CNI_ARGS can carry only one.
func (w want) candidates(inv call.Invocation) [][]netip.Addr {
	candidates := [][]netip.Addr{w.preferred, w.claimed}
	for _, ip := range w.claimed {
		candidates = append(candidates, []netip.Addr{ip})
	}
	var sets [][]netip.Addr
	for _, set := range append(candidates, w.required) {
		same := func(o []netip.Addr) bool { return slices.Equal(o, set) }
		if canRequest(inv, set) && !slices.ContainsFunc(sets, same) {
			sets = append(sets, set)
		}
	}
	if len(w.required) == 0 || !canRequest(inv, w.required) {
		sets = append(sets, nil)
	}
	return sets
}

// preferring returns a want that requests the addresses that the owner held before its journal was
// lost, together with the required ones and those that it prefers already.
func (w want) preferring(found []netip.Addr) want {
	prefer := slices.Clone(w.required)
	for _, ip := range slices.Concat(w.preferred, found) {
		same := func(other netip.Addr) bool { return record.FamilyOf(other) == record.FamilyOf(ip) }
		if !slices.ContainsFunc(prefer, same) {
			prefer = append(prefer, ip)
		}
	}
	w.preferred = prefer
	return w
}

// canRequest reports whether an ADD with the invocation can request all the addresses.
func canRequest(inv call.Invocation, ips []netip.Addr) bool {
	_, err := inv.Convention(len(ips))
	return err == nil && len(ips) > 0
}

// accept returns the families of a result to claim, or why the result does not match the
// request: a requested or required address is missing, or an extra one of its family came
// with it.
func (w want) accept(res call.Result, requested []netip.Prefix, excluded func(netip.Addr) bool) ([]record.Family, error) {
	came := call.Addrs(res.Addresses)
	for _, p := range requested {
		if !slices.Contains(came, p.Addr()) {
			return nil, fmt.Errorf("requested %s, plugin returned %v", p.Addr(), came)
		}
	}
	for _, ip := range w.required {
		if !slices.Contains(came, ip) {
			return nil, fmt.Errorf("%s is required, but cannot be requested from the plugin, which returned %v", ip, came)
		}
	}
	for _, p := range requested {
		for _, extra := range came {
			was := slices.ContainsFunc(requested, func(p netip.Prefix) bool { return p.Addr() == extra })
			if !was && record.FamilyOf(extra) == record.FamilyOf(p.Addr()) {
				return nil, fmt.Errorf("requested %s, plugin returned %v, which has %s in addition", p.Addr(), came, extra)
			}
		}
	}
	families, missing, err := w.familiesToClaim(res.Addresses, excluded)
	switch {
	case err != nil || len(missing) == 0:
		return families, err
	case len(requested) > 0: // of requested addresses, a plugin such as calico-ipam returns no other family
		return nil, fmt.Errorf("plugin returned %v for the request of %v, and no address of %v", came, requested, missing)
	}
	return nil, fmt.Errorf("plugin returned %v, and no address of %v: its configuration has no range of that family", came, missing)
}

// familiesToClaim returns the wanted families that the addresses have, and those that they lack. The
// address of a family may not be excluded unless it is required: then it was accepted before.
func (w want) familiesToClaim(addresses []call.Address, excluded func(netip.Addr) bool) (there, missing []record.Family, err error) {
	var hidden []netip.Addr
	for _, f := range w.families {
		a, ok := record.Record{Result: call.Result{Addresses: addresses}}.Address(f)
		switch {
		case !ok:
			missing = append(missing, f)
		case excluded(a.Addr()) && !slices.Contains(w.required, a.Addr()):
			hidden = append(hidden, a.Addr())
		default:
			there = append(there, f)
		}
	}
	switch {
	case w.anyFamily && len(there) > 0:
		return there, nil, nil
	case len(hidden) > 0:
		return nil, missing, fmt.Errorf("%v is excluded (--exclude-addresses), so it is not allocated: release the attachment and allocate it again", hidden)
	}
	return there, missing, nil
}

// sameAddresses compares two results regardless of order.
func sameAddresses(a, b []call.Address) bool {
	x, y := call.Addrs(a), call.Addrs(b)
	slices.SortFunc(x, netip.Addr.Compare)
	slices.SortFunc(y, netip.Addr.Compare)
	return slices.Equal(x, y)
}

func (e *Engine) enabled(f record.Family) bool {
	return f == record.IPv4 && e.opts.EnableIPv4 || f == record.IPv6 && e.opts.EnableIPv6
}

// requestedFamilies returns the families that a request covers.
func (e *Engine) requestedFamilies(f record.Family) []record.Family {
	if f != "" {
		return []record.Family{f}
	}
	return slices.DeleteFunc([]record.Family{record.IPv4, record.IPv6}, func(f record.Family) bool { return !e.enabled(f) })
}
