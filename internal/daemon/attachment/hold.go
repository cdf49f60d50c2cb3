package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// hold makes the attachment held. It requests the wanted addresses, and then less as long
// as the plugin works but refuses.
func (op *Operation) hold(w Want) error {
	if err := op.World.Process(); err != nil {
		return err
	}
	t := try{Operation: op, Want: w, known: op.Rec.Addresses()}
	for {
		if again, err := t.attempt(); !again {
			return err
		}
	}
}

// attempt runs the protocol once: write the intent, DEL, ADD, reserve, write the result. The step
// numbers are in docs/design/how-it-works.md, Allocate. again reports that t is the next try;
// otherwise a failure was undone.
func (t *try) attempt() (again bool, err error) {
	inv, old, err := t.newInvocation(call.VerbAdd)
	if err != nil {
		if t.confirm { // nothing can
			t.setLost(err)
		}
		return false, errors.Join(err, t.failed)
	}
	if i := slices.IndexFunc(old, func(o call.Invocation) bool { return o.StoreProven && o.Equal(inv) }); i >= 0 {
		t.proven = &old[i]
	}
	untried := t.Rec == nil && OfContainer(t.Owner)
	old, done, err := t.prepare(inv, old)
	if err != nil || done {
		return false, err
	}
	requests := t.candidates(inv)
	requests = requests[min(t.tried, len(requests)-1):] // those that were not given up
	inv.Requested = t.prefixes(requests[0])
	delErr, err := t.intend(inv, old) // steps 3 and 4: continue even if a DEL fails
	switch {
	case err != nil:
		return false, errors.Join(err, t.failed)
	case t.failed != nil && delErr != nil: // leftovers of the previous try must be gone before the next ADD
		return false, t.undo(inv, t.failed)
	}
	t.settleOthers()
	if t.idInUseByDel(inv) { // use another one
		if OfContainer(t.Owner) {
			return false, t.undo(inv, t.idInUseError())
		}
		inv.ContainerID, inv.AddActsUntil = t.nextID(inv.Profile), time.Time{}
		if err := t.writeAdding(inv); err != nil {
			return false, err
		}
	}
	if err = t.add(inv); err == nil {
		return false, nil
	}
	if !t.judge(requests, delErr == nil && !untried, err) && !t.endCooldownAfter(err, requests[0]) {
		return false, t.undo(inv, err)
	}
	return true, nil
}

// prepare returns the invocations that need a DEL before the ADD, or ends the acquisition: what the plugin's store has
// is adopted, or the ADD cannot run.
func (t *try) prepare(inv call.Invocation, old []call.Invocation) (dels []call.Invocation, done bool, err error) {
	ofContainer := OfContainer(t.Owner)
	switch {
	case ofContainer && t.Rec == nil: // its ID is new. A refusal is repeated after a DEL, so none costs nothing.
		t.takeOver(inv)
		return nil, false, nil
	case IsWarm(t.Owner) && t.failed == nil: // its ID is new and unique
		return nil, false, nil
	case ofContainer && t.Rec.Network != "" && t.Rec.Network != inv.Network: // its runtime does not know that one
		return nil, false, errors.Join(NewError(Failed, "%s is of network %q, and pool %q has network %q now", t, t.Rec.Network, t.Pool, inv.Network), t.failed)
	case ofContainer && t.failed != nil && inv.Profile.SingleUseIDs(): // its DEL would act on the next ADD
		return nil, false, t.undo(inv, t.failed)
	case t.Rec != nil:
		return old, false, nil
	}
	adopted, absent, err := t.adopt(inv)
	if err == nil {
		err = t.checkRequired(t.Required)
	}
	if err == nil && adopted {
		err = t.grant(t.Want)
	}
	if absent {
		old = nil
	}
	return old, adopted, err
}

// writeAdding records the intent to ADD, keeping every older invocation (step 3). A first record reserves the addresses
// that are kept for it.
func (t *try) writeAdding(inv call.Invocation) error {
	r := t.newOrClonedRecord(inv)
	if t.Rec == nil {
		r.GivenUp = t.previous.Record.Addrs()
	}
	r.State, r.BootID, r.ReleaseAt = Adding, t.Opts.BootID, time.Time{}
	if len(r.Claims) == 0 {
		// The owner has no claim, so there is nothing to reacquire.
		r.Result, r.Network, r.Expiration = call.Result{}, inv.Network, nil
	}
	r.Lent = nil           // the ADD of a lost container is under its runtime's ID
	inv.AddRefused = false // a start must assume that the ADD has run; keepUndone sets it again in memory
	r.Invocations = withLast(r.Invocations, inv)
	t.WaitsForOwner, t.DelInVain, t.ReleaseAs, t.VerifyDue = false, false, "", false
	if err := t.write(r); err != nil {
		return fmt.Errorf("%s: %w; the ADD was not run", t, err)
	}
	return nil
}

// intend makes the intent durable and runs the DELs that the ADD needs before it. err ends the acquisition.
func (t *try) intend(inv call.Invocation, old []call.Invocation) (delErr, err error) {
	if !t.confirm {
		if err := t.writeAdding(inv); err != nil {
			return nil, err
		}
		done, delErr := t.delEach(old)
		t.keepUndone(inv, done, delErr)
		return delErr, nil
	}
	t.confirm = false
	r := t.Rec.Clone()
	r.Confirming = true // until a DEL has succeeded it stays held: a start verifies it, when no DEL may act any more
	if err := t.write(r); err != nil {
		return nil, err
	}
	done, delErr := t.delEach(old)
	if err := t.confirmLoss(inv, done, delErr); err != nil {
		return delErr, err
	}
	t.setInvocations(without(old, done))
	return delErr, t.writeAdding(inv)
}

// keepUndone keeps the invocations that need a further DEL, and the one of the ADD.
func (t *try) keepUndone(inv call.Invocation, done []call.Invocation, err error) {
	t.setInvocations(withLast(without(t.Rec.Invocations, done), inv))
	if err != nil {
		t.World.Report(Event{EventDelFailed, err})
	}
}

// endCooldownAfter releases a spare attachment of the pool after an ADD that the plugin refused, and reports whether the
// ADD can be repeated: the range may have been full. What a runtime requests can only be in one of some cooldowns.
func (t *try) endCooldownAfter(err error, requested []netip.Addr) bool {
	if !isPluginRefusal(err) || len(requested) > 0 || len(t.Required) > 0 || IsWarm(t.Owner) || t.endedInVain() {
		return false
	}
	for _, other := range t.World.Spare() {
		if len(t.OfRuntime) > 0 && !slices.ContainsFunc(t.OfRuntime, other.Record.Holds) {
			continue
		}
		if t.World.Settle(other, EndCooldown, false) {
			t.ended = other.Record.Addrs()
			return true
		}
	}
	return false
}

// endedInVain reports whether the range is not full: the ADD was refused although a spare attachment was released for
// it, whose addresses no other one has got.
func (t *try) endedInVain() bool {
	if len(t.ended) == 0 || len(t.OfRuntime) > 0 { // what a runtime requests may be in more than one
		return false
	}
	other, ip := t.World.Conflict("", t.ended)
	taken := ip.IsValid() && (other.Record == nil || other.Record.State != Releasing)
	unusable := func(ip netip.Addr) bool { return t.outside(ip) || t.Opts.Excludes(ip) }
	return !taken && !slices.ContainsFunc(t.ended, unusable)
}

// add runs one ADD and records its result: steps 5 to 7.
func (t *try) add(inv call.Invocation) error {
	res, err := t.World.Call(call.VerbAdd, inv) // step 5
	if err != nil {
		return err
	}
	if err := t.checkExcluded(inv, res); err != nil {
		return err
	}
	lastOnly := res.InStore && !OfContainer(t.Owner) // all are reserved
	families, err := t.accept(res, inv.Requested, lastOnly, t.excludes)
	if err != nil {
		return &rejectedResult{error: err}
	}
	if err := t.reserve(inv, res); err != nil { // step 6
		return err
	}
	return t.commit(inv, res, families, t.Expires) // step 7
}

// commit records the result of an ADD. A family that was claimed before stays claimed only if its address
// is the same. The owner uses the old one until a response has another, so that one stays reserved.
func (t *try) commit(inv call.Invocation, res call.Result, families []Family, expire bool) error {
	r := t.newOrClonedRecord(inv)
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
	t.claim(&r, families, expire)
	r.State, r.Network, r.BootID = Held, inv.Network, t.Opts.BootID
	r.Invocations = withLast(r.Invocations, inv)
	if err := t.write(r); err != nil {
		t.World.Reserve("", nil)
		return err
	}
	if changed { // its owner gets another address, so it is not reacquired
		t.Lost = false
	}
	t.setVerified()
	return nil
}

// undo releases what a failed acquisition may have allocated, and returns cause with
// the identity of the attachment. The record stays adding until a DEL has succeeded after the
// last moment at which the plugin may act. Then it is removed, unless the owner holds claims:
// those must be reacquired.
func (t *try) undo(inv call.Invocation, cause error) error {
	cause = fmt.Errorf("%s: %w", t, cause)
	if outcomeUnknown(cause) {
		// Memory suffices: a start assumes that the ADD of every adding record may still act.
		inv.AddActsUntil = inv.Profile.ActsUntil(t.World.Now())
	}
	inv.AddRefused = inv.AddRefused && isRefused(cause)
	t.setInvocations(withLast(t.Rec.Invocations, inv))
	if t.writeIfDirty() != nil {
		return cause
	}
	done, delErr := t.delEach(t.Rec.Invocations)
	ended := len(without(t.Rec.Invocations, done)) == 0
	inv = t.LastInvocation()
	t.keepUndone(inv, done, delErr)
	switch {
	case t.inUse():
		t.setLost(cause)
		if OfContainer(t.Owner) && t.proven != nil && ended {
			// The plugin has nothing of it, as before the ADD. What a lookup finds later is of another ADD.
			r := t.Rec.Clone()
			r.State, r.Invocations = Held, withLast(r.Invocations, *t.proven)
			cause = errors.Join(cause, t.write(r))
		}
		return cause
	case delErr != nil:
		cause = fmt.Errorf("%w; a DEL failed and is retried in the background", cause)
		if inv.AddRefused {
			cause = errors.Join(cause, t.write(t.Rec.Clone())) // otherwise a start assumes more
		}
		return cause
	case !ended:
		return cause
	default:
		return errors.Join(cause, t.removeRecord())
	}
}
