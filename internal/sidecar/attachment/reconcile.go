package attachment

import (
	"fmt"
	"slices"
)

// wholeRetries is how often all claimed addresses of a lost attachment are requested, before each is
// requested without the others: about 15 s.
const wholeRetries = 4

// Reconcile is recovery after a start, retry after a failure, and work that a deadline
// triggers: one function, because a crash makes them the same.
func (op *Operation) Reconcile() error {
	r, now := op.Rec, op.World.Now()
	switch {
	case r == nil, r.State == Tombstone && now.Before(r.LateDel.Until):
		return nil
	case r.State == Tombstone:
		return op.removeRecord()
	case op.ReleaseAs != "":
		op.Action = op.ReleaseAs
		return op.release()
	case op.Expired(now):
		op.Action = Expire
		err := op.unclaim()
		if op.Rec == nil || !op.Expired(now) { // otherwise it is retried, and noted then
			op.World.Note(Note{Kind: NoteExpired})
		}
		return err
	case r.State == Cooldown && now.Before(r.ReleaseAt):
		return op.writeIfDirty()
	case r.State == Cooldown, r.State == Releasing:
		op.Action = Cleanup
		return op.release()
	case r.State == Adding:
		return op.reacquire()
	}
	return op.reverify()
}

// reverify verifies a held attachment once per start, after a duplicate, or after a failed
// check, and reacquires it if it is lost.
func (op *Operation) reverify() error {
	if !op.World.Doubted() && op.Failures == 0 {
		return op.delOldIDs()
	}
	var held bool
	var err error
	if !op.Freed { // otherwise the plugin holds nothing
		held, err = op.verify()
	}
	if err == nil && !held {
		err = op.reacquire()
	}
	if err != nil || op.Rec == nil { // a container interface that has ended is released
		return err
	}
	return op.delOldIDs()
}

// reacquire completes an interrupted acquisition, and reacquires lost addresses that were
// allocated to the owner, if they can be requested and are in the ranges. Addresses that were never
// allocated to the owner are released.
func (op *Operation) reacquire() error {
	if op.Rec.State == Adding && !op.inUse() {
		op.Action = Cleanup
		return op.release()
	}
	if OfContainer(op.Owner) {
		if again, err := op.mayAddAgain(); !again {
			return err
		}
	}
	op.Action = Reacquire
	inv, claimed := op.LastInvocation(), op.claimedAddresses()
	if !slices.ContainsFunc(claimed, op.outside) && (op.Freed || canRequest(inv, claimed)) {
		required := claimed
		// One that another holder has for good must not cost the owner the other family.
		if n := op.Failures; n >= wholeRetries && len(claimed) > 1 {
			required = claimed[n%len(claimed):][:1]
		}
		return op.acquire(Want{Preferred: op.inRange(op.addresses()), Required: required})
	}
	op.setLost(fmt.Errorf("these addresses cannot be requested from plugin %s; the next request of the owner gets others", inv.Plugin))
	if op.Rec.State != Adding {
		return nil
	}
	if err := op.World.Process(); err != nil {
		return err
	}
	if err := op.writeIfDirty(); err != nil {
		return err
	}
	addsEnded := op.addsEnded()
	err := op.delAll(op.Rec.Invocations)
	op.WaitsForOwner = err == nil && addsEnded
	op.publish()
	return err
}
