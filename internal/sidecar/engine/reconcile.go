package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// Retries of background work wait minRetryDelay, doubled with each failure up to maxRetryDelay,
// plus up to a quarter, so that many attachments do not query a failing plugin in step.
const (
	minRetryDelay = time.Second
	maxRetryDelay = 5 * time.Minute
)

// reconcile does the background work that is due for an attachment.
func (e *Engine) reconcile(a *entry) {
	a, err := e.getOrCreate(a.key)
	if err != nil {
		return
	}
	op := &operation{engine: e, entry: a, waitCtx: e.ctx}
	if !op.tryLock() && op.waitForLock() != nil {
		return
	}
	defer op.unlock()
	op.started = time.Now()
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

// nest returns an operation on another attachment that uses the plugin process of op; nil if the
// engine is stopping or the other attachment is locked: the holder of its lock may wait for a process.
// The caller unlocks it.
func (op *operation) nest(k key) *operation {
	a, err := op.engine.getOrCreate(k)
	if err != nil {
		return nil
	}
	other := &operation{engine: op.engine, entry: a, waitCtx: op.engine.ctx, started: time.Now(), hasProcess: true, nested: true, calls: op.calls}
	if !other.tryLock() {
		op.engine.unref(a)
		return nil
	}
	return other
}

// offer reconciles a lost attachment whose addresses the plugin has just returned to op, which
// released them. Now the plugin may allocate them to their owner, even if they cannot be requested.
func (op *operation) offer(a *entry) {
	other := op.nest(a.key)
	if other == nil {
		return
	}
	defer other.unlock()
	other.offered = other.describe().Lost // it may have been reacquired meanwhile
	other.reconcileAndRecord()
	other.schedule()
}

// reconcile is recovery after a start, retry after a failure, and work that a deadline
// triggers: one function, because a crash makes them the same.
func (op *operation) reconcile() error {
	switch {
	case op.entry.rec == nil:
		return nil
	case op.entry.rec.State == record.Tombstone:
		if time.Now().Before(op.entry.rec.LateDel.Until) {
			return nil
		}
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
	}
	switch op.entry.rec.State {
	case record.Releasing:
		op.action = ActionCleanup
		return op.release()
	case record.Cooldown:
		if time.Now().Before(op.entry.rec.ReleaseAt) {
			return nil
		}
		op.action = ActionCleanup
		return op.release()
	case record.Adding:
		return op.reacquire()
	default:
		return op.reverify()
	}
}

// reverify verifies a held attachment once per start, after a duplicate, or after a failed
// check, and reacquires it if it is lost.
func (op *operation) reverify() error {
	if op.isRecovered() && op.entry.failures == 0 {
		return op.delOldIDs()
	}
	var held bool
	var err error
	if !op.offered { // otherwise the plugin holds nothing
		held, err = op.verify()
	}
	if err == nil && !held {
		err = op.reacquire()
	}
	if err != nil {
		return err
	}
	op.setRecovered()
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
	c, claimed := op.lastInvocation(), op.claimedAddresses()
	if !slices.ContainsFunc(claimed, op.outside) && (op.offered || canRequest(c, claimed)) {
		return op.acquire(acquireRequest{preferred: op.inRange(op.addresses()), required: claimed})
	}
	op.setLost(fmt.Errorf("these addresses cannot be requested from plugin %s; the next request of the owner gets others", c.Plugin))
	if op.entry.rec.State != record.Adding {
		return nil
	}
	if err := op.acquireProcess(); err != nil {
		return err
	}
	if op.entry.dirty {
		// The record on disk may be held: until it is adding, the plugin must keep the addresses.
		if err := op.write(op.entry.rec.Clone()); err != nil {
			return err
		}
	}
	addsEnded := op.addsEnded()
	err := op.delAll(op.entry.rec.Invocations)
	op.entry.waitsForOwner = err == nil && addsEnded
	return err
}

// delOldIDs runs the DEL of earlier ADDs under other container IDs. One under the same ID waits
// for the release: it would free the held addresses.
func (op *operation) delOldIDs() error {
	if op.entry.rec.State != record.Held {
		return nil
	}
	live := op.lastInvocation()
	var kept []call.Invocation
	var errs []error
	for _, c := range op.entry.rec.Invocations {
		if c.ContainerID == live.ContainerID || time.Now().Before(c.AddActsUntil) {
			kept = append(kept, c)
			continue
		}
		if err := op.acquireProcess(); err != nil {
			return err
		}
		if err := op.del(c); err != nil {
			kept, errs = append(kept, c), append(errs, err)
		}
	}
	if len(kept) == len(op.entry.rec.Invocations) {
		return errors.Join(errs...)
	}
	r := op.entry.rec.Clone()
	r.Invocations = kept
	return errors.Join(append(errs, op.write(r))...)
}

// expired reports whether an allocation was not confirmed in time.
func (op *operation) expired() bool {
	claimed := op.entry.rec.State == record.Held || op.entry.rec.State == record.Adding && len(op.entry.rec.Claims) > 0
	return claimed && op.entry.rec.Expiration != nil && !time.Now().Before(op.entry.rec.Expiration.Deadline)
}

// schedule sets the timer for the next reconciliation.
func (op *operation) schedule() {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	if op.entry.timer != nil {
		op.entry.timer.Stop()
		op.entry.timer = nil
	}
	due, ok := op.nextDue()
	if !ok || op.engine.stopping {
		return
	}
	a := op.entry
	a.timer = time.AfterFunc(time.Until(due), func() { a.shared.workqueue.add(a) })
}

// nextDue returns when the attachment must be reconciled, if ever.
func (op *operation) nextDue() (time.Time, bool) {
	if op.entry.rec == nil {
		return time.Time{}, false
	}
	var times []time.Time
	if op.entry.failures > 0 {
		times = append(times, op.entry.retryAt)
	}
	if op.entry.rec.Expiration != nil && !(op.entry.failures > 0 && op.expired()) {
		times = append(times, op.entry.rec.Expiration.Deadline)
	}
	switch {
	case op.entry.failures > 0:
	case op.entry.rec.State == record.Adding && !op.entry.waitsForOwner, op.entry.rec.State == record.Releasing:
		times = append(times, op.addActsUntil())
	case op.entry.rec.State == record.Cooldown:
		times = append(times, op.entry.rec.ReleaseAt)
	case op.entry.rec.State == record.Tombstone:
		times = append(times, op.entry.rec.LateDel.Until)
	case op.entry.rec.State == record.Held:
		for _, c := range op.entry.rec.Invocations {
			if c.ContainerID != op.lastInvocation().ContainerID {
				times = append(times, c.AddActsUntil)
			}
		}
	}
	if len(times) == 0 {
		return time.Time{}, false
	}
	return slices.MinFunc(times, time.Time.Compare), true
}

// backoff returns the delay after a number of consecutive failures.
func backoff(failures int) time.Duration {
	d := maxRetryDelay
	if failures < 10 {
		d = min(d, minRetryDelay<<(failures-1))
	}
	return d + rand.N(d/4)
}
