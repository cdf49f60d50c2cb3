package attachment

import (
	"errors"
	"fmt"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// writeAdding records the intent to ADD, keeping every older invocation (step 3).
func (op *Operation) writeAdding(inv call.Invocation) error {
	r := op.newOrClonedRecord(inv)
	r.State, r.BootID, r.ReleaseAt = Adding, op.Opts.BootID, time.Time{}
	if len(r.Claims) == 0 {
		// The owner has no claim, so there is nothing to reacquire.
		r.Result, r.Network, r.Expiration = call.Result{}, inv.Network, nil
	}
	inv.AddRefused = false // of an interrupted ADD; delEach sets it again in memory
	r.Invocations = withLast(r.Invocations, inv)
	op.WaitsForOwner, op.ReleaseAs = false, ""
	op.World.SetDoubted(false)
	write := op.write
	if op.unconfirmed != nil {
		write = op.writeUnconfirmed
	}
	if err := write(r); err != nil {
		return fmt.Errorf("%s: %w; the ADD was not run", op, err)
	}
	return nil
}

// writeUnconfirmed sets an adding record in memory, but the disk keeps the attachment held until the DEL
// has confirmed that it is lost: a start verifies it again, when no DEL may act any more (load).
func (op *Operation) writeUnconfirmed(adding Record) error {
	held := op.unconfirmed.Clone()
	for _, inv := range adding.Invocations {
		markLateDel(&held, inv, op.World.Now())
	}
	held.Confirming = true
	if err := op.write(held); err != nil {
		return err
	}
	op.Dirty = true
	op.setRecord(adding)
	return nil
}

// keepUnconfirmed restores the record as it was before CHECK reported the attachment lost: the plugin
// did not confirm that, so it may be unavailable and its CHECK wrong. A DEL that may still act is
// recorded: until then CHECK proves nothing.
func (op *Operation) keepUnconfirmed(delErr error) error {
	r := op.unconfirmed.Clone()
	r.Generation, r.LateDel = op.Rec.Generation, op.Rec.LateDel
	op.setRecord(r)
	if op.idInUseByDel(op.LastInvocation()) || outcomeUnknown(delErr) { // it may be lost now
		op.setLost(delErr)
	}
	return fmt.Errorf("%s: the plugin reported that it does not hold %v, but the DEL that must confirm that failed, so it is kept: %w",
		op, r.Addrs(), errors.Join(delErr, op.write(r)))
}

// undoAcquire releases what a failed acquisition may have allocated, and returns cause with
// the identity of the attachment. The record stays adding until a DEL has succeeded after the
// last moment at which the plugin may act. Then it is removed, unless the owner holds claims:
// those must be reacquired.
func (op *Operation) undoAcquire(inv call.Invocation, cause error) error {
	cause = fmt.Errorf("%s: %w", op, cause)
	if outcomeUnknown(cause) {
		// Memory suffices: a start assumes that the ADD of every adding record may still act.
		inv.AddActsUntil = inv.Profile.ActsUntil(op.World.Now())
	}
	inv.AddRefused = inv.AddRefused && isRefused(cause)
	op.setInvocations(withLast(op.Rec.Invocations, inv))
	r := op.Rec
	if op.writeIfDirty() != nil {
		return cause
	}
	addsEnded := op.addsEnded()
	delErr := op.delEach(r.Invocations, inv)
	switch {
	case op.inUse():
		op.setLost(cause)
		if OfContainer(op.Owner) && op.storeProven && delErr == nil && addsEnded {
			// The plugin has nothing of it, as before the ADD. What a lookup finds later is of another ADD.
			inv.StoreProven = true
			r := op.Rec.Clone()
			r.State, r.Invocations = Held, withLast(r.Invocations, inv)
			cause = errors.Join(cause, op.write(r))
		}
		return cause
	case delErr != nil:
		cause = fmt.Errorf("%w; a DEL failed and is retried in the background", cause)
		if inv.AddRefused {
			cause = errors.Join(cause, op.write(op.Rec.Clone())) // otherwise a start assumes more
		}
		return cause
	case !addsEnded:
		return cause
	default:
		return errors.Join(cause, op.removeRecord())
	}
}
