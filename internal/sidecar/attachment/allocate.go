package attachment

import (
	"net/netip"
	"slices"
)

// Allocate returns held addresses if the plugin still holds them; anything else is acquired.
func (op *Operation) Allocate(w Want) error {
	if err := op.checkComparable(); err != nil {
		return err
	}
	r, restore := op.Rec, len(w.Required) > 0
	excluded := slices.ContainsFunc(op.addresses(), op.excludes)
	switch {
	case restore:
		var err error
		if w.Preferred, err = op.toRestore(w.Required[0], w.Also); err != nil {
			return err
		}
	case excluded && len(r.Claims) == 0: // released, and excluded since
		return op.acquire(w)
	default:
		w.Claimed = op.inRange(op.claimedAddresses())
		if w.Preferred = op.inRange(op.addresses()); excluded {
			w.Preferred = w.Claimed
		}
	}
	if r != nil && isHeld(r.State) && (restore || !op.anyOutside(w.Families)) {
		held, err := op.verify()
		if err != nil {
			return err
		}
		if held {
			return op.grant(w)
		}
	}
	return op.acquire(w)
}

// isHeld reports whether the plugin has the addresses in a state, for the present or the last owner.
func isHeld(s State) bool { return s == Held || s == Cooldown }

// toRestore returns the addresses to request first by a restore, or why the owner cannot get the
// address. also is RestoreRequest.Also.
func (op *Operation) toRestore(ip, also netip.Addr) ([]netip.Addr, error) {
	r := op.Rec
	have := op.addresses()
	if r != nil && r.State == Releasing {
		have = nil // it is being released
	}
	if r != nil && op.excludes(ip) { // without a record it may be found in the plugin's store
		return nil, op.excludedRequestError(ip)
	}
	if other, ok := op.World.Holder(ip); ok && !slices.Contains(have, ip) {
		return nil, newError(Exists, "address %s belongs to %s (container ID %s)", ip, other, other.ID)
	}
	if len(have) > 0 && !slices.Contains(have, ip) {
		return nil, op.holdsOthersError(have, ip)
	}
	if r != nil && op.outside(ip) { // without a record the owner may hold another one
		return nil, op.outsideError(ip)
	}
	if len(have) > 0 {
		return op.inRange(have), nil
	}
	return op.together(ip, also), nil
}

// together returns the addresses to request together, none without a second one: one DEL frees
// both families, so a request for only the first would give up the second
// (docs/design/how-it-works.md, Restore).
func (op *Operation) together(ip, also netip.Addr) []netip.Addr {
	if !also.IsValid() || FamilyOf(also) == FamilyOf(ip) || !op.Opts.Enabled(FamilyOf(also)) || op.excludes(also) || op.outside(also) {
		return nil
	}
	if _, ok := op.World.Holder(also); ok {
		return nil
	}
	return []netip.Addr{ip, also}
}
