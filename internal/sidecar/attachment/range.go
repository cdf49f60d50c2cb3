package attachment

import (
	"net/netip"
	"slices"
)

// An address outside the ranges of the present configuration may be allocated on another node by now.
// It is not allocated any more: its owner keeps it until it requests an address, and gets another one
// then (docs/design/how-it-works.md, Addresses outside the ranges).

// outside reports whether an address is outside the ranges of the pool's present configuration. It is
// false if these are not known.
func (op *Operation) outside(ip netip.Addr) bool {
	return op.World.Outside(ip)
}

// checkComparable rejects a request for recorded addresses before the first configuration of the pool
// since the start, if the plugin has ranges to compare them with: the node may have got others.
func (op *Operation) checkComparable() error {
	if len(op.Rec.Addresses()) == 0 || !op.LastInvocation().Profile.LikeHostLocal() {
		return nil
	}
	if err := op.World.Configured(); err != nil {
		return newError(Failed, "%s: %v cannot be compared with the ranges of the pool yet: %w", op, op.addresses(), err)
	}
	return nil
}

// inRange returns the addresses that are not outside.
func (op *Operation) inRange(ips []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(ips), op.outside)
}

// anyOutside reports whether the recorded address of one of the families is outside.
func (op *Operation) anyOutside(families []Family) bool {
	return slices.ContainsFunc(families, func(f Family) bool {
		if op.Rec == nil {
			return false
		}
		a, ok := op.Rec.Address(f)
		return ok && op.outside(a.Addr())
	})
}
