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
	// yields: the attachment is reacquired because of another one. confirm: a DEL must confirm that it is lost.
	yields, confirm bool
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
// with it. lastOnly accepts that of another range set before it: the client uses the last one alone.
func (w Want) accept(res call.Result, requested []netip.Prefix, lastOnly bool, excluded func(netip.Addr) bool) ([]Family, error) {
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
	was := func(ip netip.Addr) bool {
		return slices.ContainsFunc(requested, func(p netip.Prefix) bool { return p.Addr() == ip })
	}
	for _, p := range requested {
		last, _ := Record{Result: res}.Address(FamilyOf(p.Addr()))
		if lastOnly && was(last.Addr()) {
			continue
		}
		for _, extra := range came {
			if !was(extra) && FamilyOf(extra) == FamilyOf(p.Addr()) {
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

// excludes reports whether an address must not be allocated: it is excluded, and not claimed by the
// owner; a claimed one was allocated before it was excluded.
func (op *Operation) excludes(ip netip.Addr) bool {
	rec := op.Rec
	return op.Opts.Excludes(ip) && (rec == nil || !rec.Holds(ip) || !rec.Claimed(FamilyOf(ip)))
}

// outside reports whether an address is outside the ranges of the pool's present configuration. It is
// false if these are not known. Such an address may be allocated on another node by now: its owner keeps it until it
// requests an address, and gets another one then (docs/design/how-it-works.md, Addresses outside the ranges).
func (op *Operation) outside(ip netip.Addr) bool {
	outside, err := op.World.Outside(ip)
	return outside && err == nil
}

// inRange returns the addresses that are not outside.
func (op *Operation) inRange(ips []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(ips), op.outside)
}

// anyOutside reports whether the recorded address of one of the families is outside.
func (op *Operation) anyOutside(families []Family) bool {
	return slices.ContainsFunc(families, func(f Family) bool {
		a, ok := op.Rec.Address(f)
		return ok && op.outside(a.Addr())
	})
}

// checkComparable rejects a request for recorded addresses before the first configuration of the pool
// since the start, if the plugin has ranges to compare them with: the node may have got others.
func (op *Operation) checkComparable() error {
	ips := op.addresses()
	if len(ips) == 0 || !op.LastInvocation().Profile.LikeHostLocal() {
		return nil
	}
	if _, err := op.World.Outside(ips[0]); err != nil {
		return NewError(Failed, "%s: %v cannot be compared with the ranges of the pool yet: %w", op, ips, err)
	}
	return nil
}

// checkRequired rejects a request of an excluded address that the owner does not have, and of one
// outside the ranges unless the owner holds others.
func (op *Operation) checkRequired(ips []netip.Addr) error {
	for _, ip := range ips {
		switch {
		case op.excludes(ip):
			return op.excludedRequestError(ip)
		case op.outside(ip) && (op.Rec == nil || op.Rec.Holds(ip)):
			return op.outsideError(ip)
		}
	}
	return nil
}

// checkExcluded returns an error if a result must not be used because of an excluded address, which only the
// plugin can be configured not to return. One that came with requested ones stays with them, because they may be in
// use; it is not allocated. A container would get it: its response is the plugin's result.
func (t *try) checkExcluded(inv call.Invocation, res call.Result) error {
	if len(inv.Requested) > 0 && !OfContainer(t.Owner) {
		return nil
	}
	came := call.Addrs(res.Addresses)
	if i := slices.IndexFunc(came, t.excludes); i >= 0 {
		return &rejectedResult{error: fmt.Errorf("plugin %s returned %v, which was released, because %s is excluded (--exclude-addresses): exclude it in the plugin's configuration, too",
			inv.Plugin, came, came[i])}
	}
	return nil
}

// sameAddresses compares two results regardless of order.
func sameAddresses(a, b []call.Address) bool {
	x, y := call.Addrs(a), call.Addrs(b)
	slices.SortFunc(x, netip.Addr.Compare)
	slices.SortFunc(y, netip.Addr.Compare)
	return slices.Equal(x, y)
}
