package attachment

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Want is what a request, or a reacquisition, wants from an acquisition.
type Want struct {
	// Required are addresses without which a result is rejected.
	Required []netip.Addr
	// Also is the address of the other family that the owner of a required one had; invalid for none. It
	// is requested together with that one if the owner holds nothing.
	Also netip.Addr
	// OfRuntime are the addresses that a container runtime requests from the plugin by its own parameters.
	OfRuntime []netip.Addr
	// Preferred are addresses to request first; Claimed are the ones of them that the owner
	// must get back if possible.
	Preferred, Claimed []netip.Addr
	// Families are the families to claim; with Any, the ones of them that the result has.
	Families []Family
	Any      bool
	// Expires requests an allocation that must be confirmed.
	Expires bool
}

// candidates returns the sets of addresses to request, one ADD after the other; nil requests any. Sets
// that cannot be requested are left out. If two addresses are claimed, each is then requested separately:
// the owner keeps one even if the other is taken, or CNI_ARGS can carry only one.
func (w Want) candidates(inv call.Invocation) [][]netip.Addr {
	candidates := [][]netip.Addr{w.Preferred, w.Claimed}
	for _, ip := range w.Claimed {
		candidates = append(candidates, []netip.Addr{ip})
	}
	var sets [][]netip.Addr
	for _, set := range append(candidates, w.Required) {
		same := func(o []netip.Addr) bool { return slices.Equal(o, set) }
		if canRequest(inv, set) && !slices.ContainsFunc(sets, same) {
			sets = append(sets, set)
		}
	}
	if len(w.Required) == 0 || !canRequest(inv, w.Required) {
		sets = append(sets, nil)
	}
	return sets
}

// preferring returns a want that requests the addresses that the owner held before its journal was
// lost, together with the required ones and those that it prefers already.
func (w Want) preferring(found []netip.Addr) Want {
	prefer := slices.Clone(w.Required)
	for _, ip := range slices.Concat(w.Preferred, found) {
		same := func(other netip.Addr) bool { return FamilyOf(other) == FamilyOf(ip) }
		if !slices.ContainsFunc(prefer, same) {
			prefer = append(prefer, ip)
		}
	}
	w.Preferred = prefer
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
func (w Want) accept(res call.Result, requested []netip.Prefix, excluded func(netip.Addr) bool) ([]Family, error) {
	came := call.Addrs(res.Addresses)
	for _, p := range requested {
		if !slices.Contains(came, p.Addr()) {
			return nil, fmt.Errorf("requested %s, plugin returned %v", p.Addr(), came)
		}
	}
	for _, ip := range w.Required {
		if !slices.Contains(came, ip) {
			return nil, fmt.Errorf("%s is required, but cannot be requested from the plugin, which returned %v", ip, came)
		}
	}
	for _, ip := range w.OfRuntime {
		if !slices.Contains(came, ip) {
			return nil, fmt.Errorf("the container runtime requested %s, plugin returned %v, which was released", ip, came)
		}
	}
	for _, p := range requested {
		for _, extra := range came {
			was := slices.ContainsFunc(requested, func(p netip.Prefix) bool { return p.Addr() == extra })
			if !was && FamilyOf(extra) == FamilyOf(p.Addr()) {
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
func (w Want) familiesToClaim(addresses []call.Address, excluded func(netip.Addr) bool) (there, missing []Family, err error) {
	var hidden []netip.Addr
	for _, f := range w.Families {
		a, ok := Record{Result: call.Result{Addresses: addresses}}.Address(f)
		switch {
		case !ok:
			missing = append(missing, f)
		case excluded(a.Addr()) && !slices.Contains(w.Required, a.Addr()):
			hidden = append(hidden, a.Addr())
		default:
			there = append(there, f)
		}
	}
	switch {
	case w.Any && len(there) > 0:
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
