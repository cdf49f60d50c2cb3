package engine

import (
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
func (op *operation) acquire(want acquireRequest) error {
	if err := op.acquireProcess(); err != nil {
		return err
	}
	var running chan struct{}
	if !op.nested {
		running = op.entry.shared.acquisitions.begin()
		defer func() { op.entry.shared.acquisitions.end(running) }()
	}
	want.known, want.hides = op.entry.rec.Addresses(), op.hides
	var failed error
	for {
		if want.await {
			running = op.awaitOthers(&want, running)
		}
		want.othersRan = op.entry.shared.acquisitions.watch()
		next, err := op.tryAcquire(&want, failed)
		if d, ok := errors.AsType[*duplicateError](err); ok && d.verify {
			defer d.other.shared.workqueue.add(d.other)
		}
		if !next {
			return err
		}
		failed = err
	}
}

// tryAcquire runs the protocol once: write the intent, DEL, ADD, reserve, write the result. The
// step numbers are those of docs/design/how-it-works.md, Allocate. failed is the error of the previous
// try. next reports whether there is another request to try; if not, a failure was undone.
func (op *operation) tryAcquire(want *acquireRequest, failed error) (next bool, err error) {
	inv, old, err := op.newInvocation()
	if err != nil {
		if op.unconfirmed != nil { // nothing can confirm it
			op.setLost(err)
		}
		return false, errors.Join(err, failed)
	}
	if op.entry.rec == nil {
		adopted, absent, err := op.adopt(inv, want)
		if d, ok := errors.AsType[*duplicateError](err); ok { // the DEL below releases ours
			if d.verify {
				defer d.other.shared.workqueue.add(d.other)
			}
		} else if err != nil {
			return false, err
		}
		if err := op.checkRequired(*want); err != nil {
			return false, err
		}
		if adopted {
			return false, op.grant(*want)
		}
		if absent {
			old = nil // no DEL is needed
		}
	}
	requests := want.candidates(inv)
	inv.Requested = want.prefixes(requests[0])
	defer op.prestart(op.acquireCalls(old, inv))()
	if err := op.writeAdding(inv); err != nil { // step 3
		return false, errors.Join(fmt.Errorf("%s: %w; the ADD was not run", op, err), failed)
	}
	delErr := op.delEach(old, inv) // step 4: continue even if it fails
	if op.unconfirmed != nil {
		return false, op.keepUnconfirmed(delErr)
	}
	if failed != nil && delErr != nil {
		// Leftovers of the previous try must be gone before the next ADD.
		return false, op.undoAcquire(inv, failed)
	}
	if x, ok := errors.AsType[*excludedError](failed); ok {
		op.setAside(inv, x.ip)
	}
	if d, ok := errors.AsType[*duplicateError](failed); ok && d.offer {
		op.offer(d.other)
	}
	inUse := op.idInUseByDel(inv)
	if inUse { // use another one
		inv.ContainerID, inv.AddActsUntil = op.nextID(inv.Profile), time.Time{}
	}
	if inUse || op.entry.dirty { // dirty: the loss is confirmed now
		if err := op.writeAdding(inv); err != nil {
			return false, fmt.Errorf("%s: %w; the ADD was not run", op, err)
		}
	}
	err = op.add(inv, *want)
	if err == nil {
		return false, nil
	}
	if x, ok := errors.AsType[*excludedError](err); ok {
		if want.excluded++; want.excluded < maxExcluded {
			return true, err
		}
		return false, op.undoAcquire(inv, fmt.Errorf("%w, as the %d results before it: exclude fewer addresses, or those of the plugin's configuration, too", x, want.excluded-1))
	}
	// Leftovers may have caused the failure; then the same is requested again.
	if delErr == nil && !want.repeatAfter(requests[0], err) && !op.repeatAfterOthers(want, requests[0], err) {
		want.tried++
		requests = requests[1:]
	}
	if len(requests) > 0 && retryable(err) {
		return true, err
	}
	return false, op.undoAcquire(inv, err)
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
	if op.unconfirmed != nil {
		return op.writeUnconfirmed(r)
	}
	return op.write(r)
}

// writeUnconfirmed sets an adding record in memory, but the disk keeps the attachment held until the DEL
// has confirmed that it is lost: a start verifies it again, when no DEL may act any more (load).
func (op *operation) writeUnconfirmed(adding record.Record) error {
	held := op.unconfirmed.Clone()
	for _, c := range adding.Invocations {
		markLateDel(&held, c, time.Now())
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
// did not answer the DEL, so it may be unavailable, and what it said of the attachment wrong. A DEL
// that may still act is recorded: until then CHECK proves nothing.
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
func (op *operation) add(inv call.Invocation, want acquireRequest) error {
	res, err := op.engine.plugin.Add(op.callCtx(), op.call(inv)) // step 5
	if err != nil {
		return err
	}
	if err := op.checkExcluded(inv, res); err != nil {
		return err
	}
	families, err := want.accept(res, inv.Requested)
	if err != nil {
		return &unusableResult{err}
	}
	if err := op.reserve(inv, res); err != nil { // step 6
		return err
	}
	if err := op.commit(inv, res, families, want.expires); err != nil { // step 7
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
	r.Result = previousLast(res, before)
	same := func(f record.Family) bool {
		before, _ := before.Address(f)
		now, _ := r.Address(f)
		return before.Addr() == now.Addr()
	}
	changed := slices.ContainsFunc(r.Claims, func(f record.Family) bool { return !same(f) })
	r.Claims = slices.DeleteFunc(r.Claims, func(f record.Family) bool { return !same(f) })
	op.claim(&r, families, expire)
	r.State, r.Network, r.BootID = record.Held, inv.Network, op.engine.opts.BootID
	r.Invocations = withLast(r.Invocations, inv)
	if err := op.write(r); err != nil {
		return err
	}
	op.setReacquired(changed)
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
	if op.entry.dirty {
		// The record on disk may be held. Until it is adding again, the plugin must keep the
		// addresses, or a restart would trust addresses that another owner has.
		if err := op.write(r); err != nil {
			return cause
		}
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
