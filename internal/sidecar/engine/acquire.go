package engine

import (
	"context"
	"errors"
	"net/netip"
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

// keepExcluded acquires an excluded address that was just released for a separate owner. Without
// success the plugin may return it again, which is counted by the caller.
func (op *operation) keepExcluded(inv call.Invocation, ip netip.Addr) {
	keeper := op.lockOther(key{op.entry.pool, excludedOwnerPrefix + ip.String()})
	if keeper == nil {
		return
	}
	defer keeper.unlock()
	keeper.action, keeper.waitCtx, keeper.client, keeper.requestID = ActionExclude, op.waitCtx, op.client, op.requestID
	var w want
	if canRequest(inv, []netip.Addr{ip}) {
		w.required = []netip.Addr{ip}
	}
	err := keeper.acquire(w)
	keeper.recordResult(err)
	op.engine.actionDone(ActionExclude, keeper.entry.pool, []record.Family{record.FamilyOf(ip)}, err)
	if err != nil {
		keeper.outcomeLogger([]netip.Addr{ip}).WithError(err).Warn("An excluded address could not be set aside; the plugin may return it again")
	} else {
		keeper.outcomeLogger(keeper.addresses()).Info("Set aside an excluded address")
	}
	keeper.schedule()
}

// reacquireHolder reconciles a lost attachment whose addresses the plugin has just returned to op,
// which released them. Now the plugin may allocate them to their owner, even if they cannot be
// requested.
func (op *operation) reacquireHolder(a *entry) {
	other := op.lockOther(a.key)
	if other == nil {
		return
	}
	defer other.unlock()
	other.freed = other.entry.lost // it may have been reacquired meanwhile
	other.reconcileAndRecord()
	other.schedule()
}
