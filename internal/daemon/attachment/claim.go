package attachment

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
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
		return op.hold(w)
	default:
		w.Claimed = op.inRange(op.claimedAddresses())
		if w.Preferred = op.inRange(op.addresses()); excluded {
			w.Preferred = w.Claimed
		}
	}
	if r != nil && isHeld(r.State) && (restore || !op.anyOutside(w.Families)) {
		found, err := op.verify()
		switch {
		case err != nil:
			return err
		case found == stillHeld:
			return op.grant(w)
		}
		w.confirm = found == reported
	}
	return op.hold(w)
}

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
	if other, taken := op.World.Conflict("", []netip.Addr{ip}); taken.IsValid() && !slices.Contains(have, ip) {
		return nil, NewError(Exists, "address %s belongs to %s (container ID %s)", ip, other, other.ID)
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
	if _, taken := op.World.Conflict("", []netip.Addr{also}); taken.IsValid() {
		return nil
	}
	return []netip.Addr{ip, also}
}

// Add returns the held addresses of a container interface, or acquires some: those that the runtime
// requests, if any, or else those that it had.
func (op *Operation) Add() error {
	requested := op.Container.Requested()
	w := Want{Families: []Family{IPv4, IPv6}, Any: true, OfRuntime: requested}
	if op.Rec != nil && isHeld(op.Rec.State) && op.ReleaseAs == "" {
		if done, err := op.addAgain(&w); done || err != nil {
			return err
		}
	}
	if err := op.checkRequired(requested); err != nil {
		return err
	}
	if taken, err := op.takeWarm(w); taken || err != nil {
		return err
	}
	switch {
	case op.Rec == nil || op.Rec.State == Tombstone:
	case op.ReleaseAs == "" && op.inUse() && len(requested) == 0:
		w.Claimed = op.inRange(op.addresses())
		w.Preferred = w.Claimed
	case op.ReleaseAs == "" && op.inUse():
	default:
		w.confirm = false // the DEL needs to confirm nothing: no client uses the addresses
		if err := op.free(); err != nil {
			return err
		}
	}
	return op.hold(w)
}

// addAgain repeats the ADD of a held container interface, and reports whether it is done. Otherwise the plugin does
// not hold it, or holds other addresses than the runtime requests now, in cooldown.
func (op *Operation) addAgain(w *Want) (done bool, err error) {
	inv := op.LastInvocation()
	if op.Rec.State == Cooldown && inv.VerifyBy() == profile.VerifyAdd { // only this ADD, in its namespace, can
		return false, nil
	}
	found, err := op.verify()
	missing := slices.IndexFunc(w.OfRuntime, func(ip netip.Addr) bool { return !slices.Contains(op.addresses(), ip) })
	switch {
	case err != nil:
		return false, err
	case found == stillHeld && missing < 0:
		if err := op.renew(); err != nil {
			return false, err
		}
		return true, op.grant(*w)
	case found == stillHeld && op.Rec.State == Cooldown: // the container has ended
		return false, nil
	case found == stillHeld:
		return false, op.holdsOthersError(op.addresses(), w.OfRuntime[missing])
	case found != gone && inv.Profile.SingleUseIDs(): // its DEL would act on the ADD
		return false, NewError(Failed, "%s: plugin %s does not hold it, and its container ID cannot be used again", op, inv.Plugin)
	}
	w.confirm = found == reported
	return false, nil
}

// renew records what the runtime passes in the ADD of a held container interface, because its DEL needs
// it: after a restore it may have another network namespace. The plugin may know the addresses by the other arguments
// of the ADD that it has run, so that one stays the last, which is verified.
func (op *Operation) renew() error {
	last := op.LastInvocation()
	if op.Rec.Lent != nil {
		return op.renewLent()
	}
	inv, err := op.World.WithContainer(last, *op.Container)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if slices.ContainsFunc(op.Rec.Invocations, inv.Equal) && inv.NetNS == last.NetNS {
		return nil
	}
	r := op.Rec.Clone()
	if inv.NetNS != last.NetNS {
		r.Created = op.World.Now() // who has seen the earlier sandbox end has not seen this one
	}
	unused := func(i call.Invocation) bool { return i.AddRefused && i.PrevResult != nil } // of an earlier repetition
	r.Invocations = slices.DeleteFunc(r.Invocations[:len(r.Invocations)-1], unused)
	if last.NetNS = inv.NetNS; !inv.Equal(last) {
		inv.AddRefused = true // there was none
		r.Invocations = append(r.Invocations, inv)
	}
	r.Invocations = append(r.Invocations, last)
	if err := op.write(r); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// Check runs the plugin's CHECK of a container interface, if that tells whether the plugin holds the addresses.
func (op *Operation) Check() error {
	inv := op.LastInvocation()
	switch {
	case op.Rec == nil || op.Rec.State == Tombstone: // it may have been added without the daemon
		var err error
		if inv, _, err = op.newInvocation(call.VerbCheck); err != nil {
			return err
		}
	case op.Rec.State != Held:
		return NewError(Failed, "%s: the attachment is in state %s", op, op.Rec.State)
	}
	if inv.VerifyBy() != profile.VerifyCheck {
		return nil
	}
	if err := op.World.Process(); err != nil {
		return err
	}
	_, err := op.World.Call(call.VerbCheck, inv)
	return err
}

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
		r.Expiration = &Expiration{UUID: op.World.Unique(), Deadline: op.World.Now().Add(op.Opts.Expiration)}
	}
}
