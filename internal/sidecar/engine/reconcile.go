package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// reconcile does the background work that is due for an attachment.
func (e *Engine) reconcile(a *entry) {
	a, err := e.getOrCreate(a.key)
	if err != nil {
		return
	}
	op := &operation{engine: e, entry: a, waitCtx: e.ctx}
	if op.waitForLock() != nil {
		return
	}
	defer op.unlock()
	op.reconcileAndRecord()
	op.finish()
}

// reconcileAndRecord reconciles, and logs, counts and records the outcome.
func (op *operation) reconcileAndRecord() {
	was := op.describe()
	families := op.families()
	err := op.reconcile()
	if op.engine.ctx.Err() == nil || err == nil {
		op.reportBackground(was, families, err)
	}
	op.recordResult(err)
}

// reconcile is recovery after a start, retry after a failure, and work that a deadline
// triggers: one function, because a crash makes them the same.
func (op *operation) reconcile() error {
	r, now := op.entry.rec, time.Now()
	switch {
	case r == nil, r.State == record.Tombstone && now.Before(r.LateDel.Until):
		return nil
	case r.State == record.Tombstone:
		return op.removeRecord()
	case op.entry.releaseAs != "":
		op.action = op.entry.releaseAs
		return op.release()
	case op.expired():
		op.action = ActionExpire
		err := op.unclaim()
		if op.entry.rec == nil || !op.expired() { // otherwise it is retried, and counted then
			op.engine.count(func(c *Counters) { c.Expired++ })
		}
		return err
	case r.State == record.Cooldown && now.Before(r.ReleaseAt):
		return nil
	case r.State == record.Cooldown, r.State == record.Releasing:
		op.action = ActionCleanup
		return op.release()
	case r.State == record.Adding:
		return op.reacquire()
	}
	return op.reverify()
}

// reverify verifies a held attachment once per start, after a duplicate, or after a failed
// check, and reacquires it if it is lost.
func (op *operation) reverify() error {
	if !op.entry.verifyDue.Load() && op.entry.failures == 0 {
		return op.delOldIDs()
	}
	var held bool
	var err error
	if !op.freed { // otherwise the plugin holds nothing
		held, err = op.verify()
	}
	if err == nil && !held {
		err = op.reacquire()
	}
	if err != nil {
		return err
	}
	return op.delOldIDs()
}

// reacquire completes an interrupted acquisition, and reacquires lost addresses that were
// allocated to the owner, if they can be requested and are in the ranges. Addresses that were never
// allocated to the owner are released.
func (op *operation) reacquire() error {
	if op.entry.rec.State == record.Adding && len(op.entry.rec.Claims) == 0 {
		op.action = ActionCleanup
		return op.release()
	}
	op.action = ActionReacquire
	inv, claimed := op.lastInvocation(), op.claimedAddresses()
	if !slices.ContainsFunc(claimed, op.outside) && (op.freed || canRequest(inv, claimed)) {
		required := claimed
		// One that another holder has for good must not cost the owner the other family.
		if n := op.entry.failures; n >= wholeRetries && len(claimed) > 1 {
			required = claimed[n%len(claimed):][:1]
		}
		return op.acquire(want{preferred: op.inRange(op.addresses()), required: required})
	}
	op.setLost(fmt.Errorf("these addresses cannot be requested from plugin %s; the next request of the owner gets others", inv.Plugin))
	if op.entry.rec.State != record.Adding {
		return nil
	}
	if err := op.acquireProcess(); err != nil {
		return err
	}
	if err := op.writeIfDirty(); err != nil {
		return err
	}
	addsEnded := op.addsEnded()
	err := op.delAll(op.entry.rec.Invocations)
	op.entry.waitsForOwner = err == nil && addsEnded
	return err
}

func (op *operation) families() []record.Family {
	var families []record.Family
	for _, ip := range op.addresses() {
		if f := record.FamilyOf(ip); !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	if len(families) == 0 {
		return op.engine.requestedFamilies("")
	}
	return families
}
