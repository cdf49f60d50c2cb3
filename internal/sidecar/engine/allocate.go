package engine

import (
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// The states of an attachment:
//
//	(none) --allocate--> adding --ADD--> held --release--> releasing --DEL--> (none)
//	                       ^              | ^                 ^
//	                       +--- lost -----+ +--- cooldown ----+
//
// Every step that changes the plugin's state is in the journal before it.

// allocate returns held addresses, or acquires new ones.
func (op *operation) allocate(f record.Family, expire bool) error {
	if err := op.checkComparable(); err != nil {
		return err
	}
	want := acquireRequest{families: op.engine.requestedFamilies(f), anyFamily: f == "", expires: expire}
	held := op.addresses()
	if slices.ContainsFunc(held, op.hides) {
		if len(op.entry.rec.Claims) == 0 {
			return op.acquire(want) // released, and excluded since
		}
		held = op.claimedAddresses()
	}
	want.preferred, want.claimed = op.inRange(held), op.inRange(op.claimedAddresses())
	if op.anyOutside(want.families) {
		return op.acquire(want)
	}
	return op.verifyOrAcquire(want)
}

// restore allocates exactly this address. also is RestoreRequest.Also.
func (op *operation) restore(ip, also netip.Addr) error {
	if err := op.checkComparable(); err != nil {
		return err
	}
	have := op.addresses()
	if op.entry.rec != nil && op.entry.rec.State == record.Releasing {
		have = nil // it is being released
	}
	if op.entry.rec != nil && op.hides(ip) { // without a record it may be found in the plugin's store
		return op.excludedRequestError(ip)
	}
	if other, id, ok := op.engine.holder(op.entry.pool, ip); ok && other != op.entry.key && !slices.Contains(have, ip) {
		if keepsExcluded(other.owner) {
			return op.excludedRequestError(ip)
		}
		return newError(Exists, "address %s belongs to %s (container ID %s)", ip, other, id)
	}
	want := acquireRequest{required: []netip.Addr{ip}, families: []record.Family{record.FamilyOf(ip)}}
	switch {
	case len(have) == 0:
		want.preferred = op.together(ip, also)
	case !slices.Contains(have, ip):
		return op.holdsOthersError(have, ip)
	default:
		want.preferred = op.inRange(have)
	}
	if op.entry.rec != nil && op.outside(ip) { // without a record the owner may hold another one
		return op.outsideError(ip)
	}
	return op.verifyOrAcquire(want)
}

// holdsOthersError rejects the restore of an address beside the held ones.
func (op *operation) holdsOthersError(have []netip.Addr, ip netip.Addr) error {
	return newError(Failed, "%s holds %v, not %s; release those first, or allocate to get the held ones", op, have, ip)
}

// together returns the addresses to request at once, none if there is no second one: one DEL frees
// both families, so a request for the first alone would give up the second
// (docs/design/how-it-works.md, Restore).
func (op *operation) together(ip, also netip.Addr) []netip.Addr {
	if !also.IsValid() || record.FamilyOf(also) == record.FamilyOf(ip) || !op.engine.enabled(record.FamilyOf(also)) || op.hides(also) || op.outside(also) {
		return nil
	}
	if other, _, ok := op.engine.holder(op.entry.pool, also); ok && other != op.entry.key {
		return nil
	}
	return []netip.Addr{ip, also}
}

// verifyOrAcquire grants a held attachment if the plugin still holds it; anything else is
// acquired.
func (op *operation) verifyOrAcquire(want acquireRequest) error {
	if op.entry.rec != nil && (op.entry.rec.State == record.Held || op.entry.rec.State == record.Cooldown) {
		held, err := op.verify()
		if err != nil {
			return err
		}
		if held {
			return op.grant(want)
		}
	}
	return op.acquire(want)
}
