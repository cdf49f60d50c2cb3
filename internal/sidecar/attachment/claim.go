package attachment

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// grant claims held addresses: it adds claims, confirms or renews the expiration, and writes
// the record only if it changed.
func (op *Operation) grant(w Want) error {
	r := op.Rec.Clone()
	if i := slices.IndexFunc(w.Required, func(ip netip.Addr) bool { return !r.Holds(ip) }); i >= 0 {
		return op.holdsOthersError(r.Addrs(), w.Required[i])
	}
	families, missing, err := w.familiesToClaim(r.Result.Addresses, op.excludes)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if len(missing) > 0 { // an ADD while it is held could free what it holds
		return fmt.Errorf("%s holds %v, and no address of %v, which only a new ADD returns: if the plugin's configuration has a range of that family, release the attachment and allocate it again", op, r.Addrs(), missing)
	}
	op.claim(&r, families, w.Expires)
	r.State, r.ReleaseAt = Held, time.Time{}
	before := op.Rec
	if !op.Dirty && before.State == Held && len(r.Claims) == len(before.Claims) && r.Expiration == nil && before.Expiration == nil {
		return nil
	}
	return op.write(r)
}

// claim adds families to a record: the response has their addresses, so the owner stops using those that
// were given up. An allocation that was claimed without an expiration, or confirmed, never expires again.
func (op *Operation) claim(r *Record, families []Family, expire bool) {
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
	r.GivenUp = slices.DeleteFunc(r.GivenUp, func(ip netip.Addr) bool { return slices.Contains(families, FamilyOf(ip)) })
	r.Expiration = nil
	if expire && !confirmed && op.Opts.Expiration > 0 {
		r.Expiration = &Expiration{UUID: op.World.NewUUID(), Deadline: op.World.Now().Add(op.Opts.Expiration)}
	}
}

// commit records the result of an ADD. A family that was claimed before stays claimed only if its address
// is the same. The owner uses the old one until a response has another, so that one stays reserved.
func (op *Operation) commit(inv call.Invocation, res call.Result, families []Family, expire bool) error {
	r := op.newOrClonedRecord(inv)
	before := r
	inv.PrevResult, inv.StoreProven, inv.AddRefused, res.Raw = res.Raw, res.InStore, false, nil
	r.Result = res
	r.Claims = slices.DeleteFunc(r.Claims, func(f Family) bool {
		was, _ := before.Address(f)
		now, _ := r.Address(f)
		if was.Addr() != now.Addr() {
			r.GivenUp = append(r.GivenUp, was.Addr())
		}
		return was.Addr() != now.Addr()
	})
	changed := len(r.Claims) < len(before.Claims)
	op.claim(&r, families, expire)
	r.State, r.Network, r.BootID = Held, inv.Network, op.Opts.BootID
	r.Invocations = withLast(r.Invocations, inv)
	if err := op.write(r); err != nil {
		return err
	}
	if changed { // its owner gets another address, so it is not reacquired
		op.Lost = false
	}
	op.setVerified()
	return nil
}
