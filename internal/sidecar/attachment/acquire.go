package attachment

import (
	"errors"
	"net/netip"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// acquire makes the attachment held. It requests the wanted addresses, and then less as long
// as the plugin works but refuses.
func (op *Operation) acquire(w Want) error {
	if err := op.World.Process(); err != nil {
		return err
	}
	t := try{Want: w, known: op.Rec.Addresses()}
	for {
		if again, err := op.attempt(&t); !again {
			return err
		}
	}
}

// attempt runs the protocol once: write the intent, DEL, ADD, reserve, write the result. The step
// numbers are in docs/design/how-it-works.md, Allocate. again reports that t is the next try;
// otherwise a failure was undone.
func (op *Operation) attempt(t *try) (again bool, err error) {
	inv, old, err := op.newInvocation()
	if err != nil {
		if op.unconfirmed != nil { // nothing can confirm it
			op.setLost(err)
		}
		return false, errors.Join(err, t.failed)
	}
	ofContainer := OfContainer(op.Owner)
	if ofContainer && op.Rec != nil && op.Rec.Network != "" && op.Rec.Network != inv.Network { // its runtime does not know that one
		return false, errors.Join(newError(Failed, "%s is of network %q, and pool %q has network %q now", op, op.Rec.Network, op.Pool, inv.Network), t.failed)
	}
	// The runtime's container IDs are new. A refusal is repeated after a DEL, so that costs nothing.
	untried := ofContainer && op.Rec == nil
	switch {
	case untried:
		old = nil
		op.takeOver(inv, t)
	case ofContainer && t.failed != nil && inv.Profile.SingleUseIDs(): // its DEL would act on the next ADD
		return false, op.undoAcquire(inv, t.failed)
	case op.Rec == nil:
		adopted, absent, err := op.adopt(inv, t)
		if err == nil {
			err = op.checkRequired(t.Want)
		}
		if err == nil && adopted {
			err = op.grant(t.Want)
		}
		if err != nil || adopted {
			return false, err
		}
		if absent {
			old = nil // no DEL is needed
		}
	}
	requests := t.requests(inv)
	inv.Requested = t.prefixes(requests[0])
	if err := op.writeAdding(inv); err != nil { // step 3
		return false, errors.Join(err, t.failed)
	}
	delErr := op.delEach(old, inv) // step 4: continue even if it fails
	switch {
	case op.unconfirmed != nil:
		return false, op.keepUnconfirmed(delErr)
	case t.failed != nil && delErr != nil: // leftovers of the previous try must be gone before the next ADD
		return false, op.undoAcquire(inv, t.failed)
	}
	if r, ok := errors.AsType[*rejectedResult](t.failed); ok && r.holderIsFree {
		op.World.Freed(*r.holder)
	}
	if op.previous.Owner != "" { // its addresses are reserved now
		op.World.EndCooldown(op.previous)
		op.previous = Key{}
	}
	inUse := op.idInUseByDel(inv)
	if inUse && ofContainer {
		return false, op.undoAcquire(inv, op.idInUseError())
	}
	if inUse { // use another one
		inv.ContainerID, inv.AddActsUntil = op.nextID(inv.Profile), time.Time{}
	}
	if inUse || op.Dirty { // dirty: the loss is confirmed now
		if err := op.writeAdding(inv); err != nil {
			return false, err
		}
	}
	if err = op.add(inv, t.Want); err == nil {
		return false, nil
	}
	next, final := t.judge(outcome{requests: requests, deleted: delErr == nil && !untried, err: err})
	if final != nil && op.endCooldownAfter(err, t.Want, requests[0]) {
		t.failed = err
		return true, nil
	}
	if final != nil {
		return false, op.undoAcquire(inv, final)
	}
	*t = next
	return true, nil
}

// endCooldownAfter ends a cooldown of the pool after an ADD that the plugin refused, and reports whether the ADD
// can be repeated: the range may have been full. What a runtime requests can only be in one of some cooldowns.
func (op *Operation) endCooldownAfter(err error, w Want, requested []netip.Addr) bool {
	return isPluginRefusal(err) && len(requested) == 0 && len(w.Required) == 0 && op.World.EndOldestCooldown(w.OfRuntime)
}

// add runs one ADD and records its result: steps 5 to 7.
func (op *Operation) add(inv call.Invocation, w Want) error {
	res, err := op.World.Call(call.VerbAdd, inv) // step 5
	if err != nil {
		return err
	}
	if err := op.checkExcluded(inv, res); err != nil {
		return err
	}
	families, err := w.accept(res, inv.Requested, op.excludes)
	if err != nil {
		return &rejectedResult{error: err}
	}
	if err := op.reserve(inv, res); err != nil { // step 6
		return err
	}
	if err := op.commit(inv, res, families, w.Expires); err != nil { // step 7
		op.World.Unreserve(call.Addrs(res.Addresses))
		return err
	}
	return nil
}
