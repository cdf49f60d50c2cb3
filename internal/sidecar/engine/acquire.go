package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// acquire makes the attachment held. It requests the wanted addresses, and then less as long
// as the plugin works but refuses. The holder of a duplicate address is verified after ours
// has been released.
func (op *operation) acquire(w want) error {
	if err := op.acquireProcess(); err != nil {
		return err
	}
	defer op.verifyHolders()
	op.entry.shared.acquisitions.begin()
	defer op.entry.shared.acquisitions.end()
	t := try{want: w, known: op.entry.rec.Addresses()}
	for {
		again, err := op.attempt(&t)
		if !again {
			return err
		}
		if t.pause > 0 {
			op.pause(t.pause)
		}
	}
}

// attempt runs the protocol once: write the intent, DEL, ADD, reserve, write the result. The step
// numbers are in docs/design/how-it-works.md, Allocate. again reports that t is the next try;
// otherwise a failure was undone.
func (op *operation) attempt(t *try) (again bool, err error) {
	othersRan := op.entry.shared.acquisitions.watch()
	inv, old, err := op.newInvocation()
	if err != nil {
		if op.unconfirmed != nil { // nothing can confirm it
			op.setLost(err)
		}
		return false, errors.Join(err, t.failed)
	}
	if op.entry.rec == nil {
		adopted, absent, err := op.adopt(inv, t)
		if err == nil {
			err = op.checkRequired(t.want)
		}
		if err == nil && adopted {
			err = op.grant(t.want)
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
	defer op.prestart(old, inv)()
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
	if r, ok := errors.AsType[*rejectedResult](t.failed); ok && r.excluded {
		op.keepExcluded(inv, r.ip)
	} else if ok && r.holderIsFree {
		op.reacquireHolder(r.holder)
	}
	inUse := op.idInUseByDel(inv)
	if inUse { // use another one
		inv.ContainerID, inv.AddActsUntil = op.nextID(inv.Profile), time.Time{}
	}
	if inUse || op.entry.dirty { // dirty: the loss is confirmed now
		if err := op.writeAdding(inv); err != nil {
			return false, err
		}
	}
	if err = op.add(inv, t.want); err == nil {
		return false, nil
	}
	next, final := t.judge(outcome{requests: requests, deleted: delErr == nil, othersRan: othersRan() && op.engine.ctx.Err() == nil, err: err})
	if final != nil {
		return false, op.undoAcquire(inv, final)
	}
	*t = next
	return true, nil
}

// pause waits without a plugin process.
func (op *operation) pause(d time.Duration) {
	op.entry.shared.acquisitions.end()
	op.processes().Release(1)
	time.Sleep(d)
	_ = op.processes().Acquire(context.Background(), 1) // nil; the attachment is not left halfway
	op.entry.shared.acquisitions.begin()
}

// verifyHolders verifies the attachments that have addresses which the plugin returned to op, too.
func (op *operation) verifyHolders() {
	for _, a := range op.holders {
		a.shared.workqueue.add(a)
	}
	op.holders = nil
}

// writeAdding records the intent to ADD, keeping every older invocation (step 3).
func (op *operation) writeAdding(inv call.Invocation) error {
	r := op.newOrClonedRecord(inv)
	r.State, r.BootID, r.ReleaseAt = record.Adding, op.engine.opts.BootID, time.Time{}
	if len(r.Claims) == 0 {
		// The owner has no claim, so there is nothing to reacquire.
		r.Result, r.Network, r.Expiration = call.Result{}, inv.Network, nil
	}
	inv.AddRefused = false // of an interrupted ADD; delEach sets it again in memory
	r.Invocations = withLast(r.Invocations, inv)
	op.entry.waitsForOwner = false
	op.entry.verifyDue.Store(false)
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
func (op *operation) writeUnconfirmed(adding record.Record) error {
	held := op.unconfirmed.Clone()
	for _, inv := range adding.Invocations {
		markLateDel(&held, inv, time.Now())
	}
	held.LateDel.Until = time.Now().Add(delRunning)
	if err := op.write(held); err != nil {
		return err
	}
	op.setRecord(adding)
	op.entry.dirty = true
	return nil
}

// delRunning is the time until the deadline of a DEL that has not ended. It is longer than any DEL acts.
const delRunning = 365 * 24 * time.Hour

// newOrClonedRecord returns a copy of the record, or a first one for an invocation.
func (op *operation) newOrClonedRecord(inv call.Invocation) record.Record {
	if op.entry.rec != nil {
		return op.entry.rec.Clone()
	}
	return record.Record{
		ContainerID: op.entry.id, Owner: op.entry.owner, Pool: op.entry.pool, Node: op.engine.opts.Node,
		Network: inv.Network, MachineID: op.engine.opts.MachineID, Created: time.Now(),
	}
}

// keepUnconfirmed restores the record as it was before CHECK reported the attachment lost: the plugin
// did not confirm that, so it may be unavailable and its CHECK wrong. A DEL that may still act is
// recorded: until then CHECK proves nothing.
func (op *operation) keepUnconfirmed(delErr error) error {
	r := op.unconfirmed.Clone()
	r.Generation, r.LateDel = op.entry.rec.Generation, op.entry.rec.LateDel
	op.setRecord(r)
	if op.idInUseByDel(op.lastInvocation()) || outcomeUnknown(delErr) { // it may be lost now
		op.setLost(delErr)
	}
	return fmt.Errorf("%s: the plugin reported that it does not hold %v, but the DEL that must confirm that failed, so it is kept: %w",
		op, r.Addrs(), errors.Join(delErr, op.write(r)))
}

// add runs one ADD and records its result: steps 5 to 7.
func (op *operation) add(inv call.Invocation, w want) error {
	res, err := op.engine.plugin.Add(op.callCtx(), op.call(inv)) // step 5
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
	if err := op.commit(inv, res, families, w.expires); err != nil { // step 7
		op.unreserve(res)
		return err
	}
	return nil
}

// commit records the result of an ADD. A family that was claimed before stays claimed only if
// its address is the same, because its owner still uses the old one.
func (op *operation) commit(inv call.Invocation, res call.Result, families []record.Family, expire bool) error {
	r := op.newOrClonedRecord(inv)
	before := r
	inv.PrevResult, inv.StoreProven, inv.AddRefused, res.Raw = res.Raw, res.InStore, false, nil
	r.Result = res
	r.Claims = slices.DeleteFunc(r.Claims, func(f record.Family) bool {
		was, _ := before.Address(f)
		now, _ := r.Address(f)
		return was.Addr() != now.Addr()
	})
	changed := len(r.Claims) < len(before.Claims)
	op.claim(&r, families, expire)
	r.State, r.Network, r.BootID = record.Held, inv.Network, op.engine.opts.BootID
	r.Invocations = withLast(r.Invocations, inv)
	if err := op.write(r); err != nil {
		return err
	}
	if changed { // its owner gets another address, so it is not reacquired
		op.engine.mu.Lock()
		op.entry.lost = false
		op.engine.mu.Unlock()
	}
	op.setVerified()
	return nil
}

// undoAcquire releases what a failed acquisition may have allocated, and returns cause with
// the identity of the attachment. The record stays adding until a DEL has succeeded after the
// last moment at which the plugin may act. Then it is removed, unless the owner holds claims:
// those must be reacquired.
func (op *operation) undoAcquire(inv call.Invocation, cause error) error {
	cause = fmt.Errorf("%s: %w", op, cause)
	if outcomeUnknown(cause) {
		// Memory suffices: a start assumes that the ADD of every adding record may still act.
		inv.AddActsUntil = inv.Profile.ActsUntil(time.Now())
	}
	inv.AddRefused = inv.AddRefused && isRefused(cause)
	r := op.entry.rec.Clone()
	r.Invocations = withLast(r.Invocations, inv)
	op.setRecord(r)
	if op.writeIfDirty() != nil {
		return cause
	}
	addsEnded := op.addsEnded()
	delErr := op.delEach(r.Invocations, inv)
	switch {
	case len(r.Claims) > 0:
		op.setLost(cause)
		return cause
	case delErr != nil:
		cause = fmt.Errorf("%w; a DEL failed and is retried in the background", cause)
		if inv.AddRefused {
			cause = errors.Join(cause, op.write(op.entry.rec.Clone())) // otherwise a start assumes more
		}
		return cause
	case !addsEnded:
		return cause
	default:
		return errors.Join(cause, op.removeRecord())
	}
}
