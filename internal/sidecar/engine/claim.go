package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// fulfilled reports whether the wanted addresses are held, claimed for good and recently
// verified, so that neither plugin nor journal is needed.
func (op *operation) fulfilled(want acquireRequest) bool {
	if op.entry.rec == nil || op.entry.rec.State != record.Held || op.entry.rec.Expiration != nil || op.entry.dirty || !op.recentlyVerified() || op.checkComparable() != nil || op.anyOutside(want.families) {
		return false
	}
	want.hides = op.hides
	families, missing, err := want.familiesToClaim(op.entry.rec.Result.Addresses)
	unclaimed := func(f record.Family) bool { return !op.entry.rec.Claimed(f) }
	elsewhere := func(ip netip.Addr) bool { return !op.entry.rec.Holds(ip) }
	return err == nil && len(missing) == 0 && !slices.ContainsFunc(families, unclaimed) && !slices.ContainsFunc(want.required, elsewhere)
}

// grant claims held addresses: it adds claims, confirms or renews the expiration, and writes
// the record only if it changed.
func (op *operation) grant(want acquireRequest) error {
	r := op.entry.rec.Clone()
	want.hides = op.hides
	if i := slices.IndexFunc(want.required, func(ip netip.Addr) bool { return !r.Holds(ip) }); i >= 0 {
		return op.holdsOthersError(r.Addrs(), want.required[i])
	}
	families, missing, err := want.familiesToClaim(r.Result.Addresses)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if len(missing) > 0 { // an ADD while it is held could free what it holds
		return fmt.Errorf("%s holds %v, and no address of %v, which only a new ADD returns: if the plugin's configuration has a range of that family, release the attachment and allocate it again", op, r.Addrs(), missing)
	}
	op.claim(&r, families, want.expires)
	r.State, r.ReleaseAt = record.Held, time.Time{}
	if !op.entry.dirty && sameClaims(r, *op.entry.rec) {
		return nil
	}
	return op.write(r)
}

// claim adds families to a record. An allocation that was claimed without an expiration, or
// confirmed, never expires again.
func (op *operation) claim(r *record.Record, families []record.Family, expire bool) {
	if len(families) == 0 {
		return // a reacquisition claims nothing new
	}
	confirmed := len(r.Claims) > 0 && r.Expiration == nil
	for _, f := range families {
		if !r.Claimed(f) {
			r.Claims = append(r.Claims, f)
		}
	}
	slices.Sort(r.Claims)
	r.Expiration = nil
	if expire && !confirmed && op.engine.opts.Expiration > 0 {
		r.Expiration = &record.Expiration{UUID: uuid.NewString(), Deadline: time.Now().Add(op.engine.opts.Expiration)}
	}
}

// sameClaims reports whether a grant leaves the record as it is.
func sameClaims(a, b record.Record) bool {
	return a.State == b.State && len(a.Claims) == len(b.Claims) && a.Expiration == nil && b.Expiration == nil
}

// claimedAddresses returns the addresses that the owner must get back: the claimed ones, or
// all recorded ones if none is claimed.
func (op *operation) claimedAddresses() []netip.Addr {
	if op.entry.rec == nil || len(op.entry.rec.Claims) == 0 {
		return op.addresses()
	}
	return slices.DeleteFunc(op.addresses(), func(ip netip.Addr) bool { return !op.entry.rec.Claimed(record.FamilyOf(ip)) })
}
