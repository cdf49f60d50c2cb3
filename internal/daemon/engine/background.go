package engine

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
)

// Retries of background work wait minRetryDelay, doubled with each failure up to maxRetryDelay,
// plus up to a quarter, so that many attachments do not query a failing plugin in step.
const (
	minRetryDelay = time.Second
	maxRetryDelay = 5 * time.Minute
)

// Held attachments are looked up in the background, so that a lease that was deleted behind the daemon
// is found without a request of its owner. Only what a lookup can read is checked: it reads a file for
// each address, while a CHECK runs a process.
const (
	// lookupInterval is the time between two rounds, plus up to a quarter.
	lookupInterval = 5 * time.Minute
	// lookupPause is the time between two pages of a round.
	lookupPause = time.Second
)

// reconcile does the background work that is due for an attachment.
func (e *Engine) reconcile(a *entry) {
	if op, err := e.background(e.ctx, a.Key); err == nil {
		defer op.end()
		_ = op.settle(false)
	}
}

// settle does background work, and logs, counts and records the outcome.
func (op *operation) settle(freed bool) error {
	ips, families := op.Rec.Addrs(), op.families()
	err := op.Operation.Settle(freed)
	if op.engine.ctx.Err() == nil || err == nil {
		op.reportBackground(ips, families, err)
	}
	op.recordResult(err)
	return err
}

// reportBackground reports completed background work. A verified attachment is not reported, and
// neither is work that continues later: an earlier ADD may still act, so a last DEL follows.
func (op *operation) reportBackground(ips []netip.Addr, families []attachment.Family, err error) {
	r := op.Rec
	continues := r != nil && (op.Expired(time.Now()) || op.Action != attachment.Expire && r.State == attachment.Releasing)
	switch {
	case err == nil && (op.Action == "" || continues):
		return
	case err != nil || op.Action != attachment.Reacquire: // which logs its own success
		op.logOutcome(ips, err, "Background work done", "Background work failed; it is retried")
	case op.Lost: // the owner's next request gets others
		err = errors.New("these addresses cannot be requested from the plugin")
	}
	if op.Action != "" {
		op.engine.actionDone(op.Action, op.Pool, families, err)
	}
}

// schedule sets the timer for the next work on the attachment of an operation, and queues the doubted ones.
func (e *Engine) schedule(op *operation) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := op.entry
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	if due, ok := a.Due(time.Now()); ok && !e.stopping {
		a.timer = time.AfterFunc(time.Until(due), func() { a.shared.workqueue.add(a) })
	}
	// Two leases were returned or acquired concurrently. One that stays, because it cannot be released, waits for lookUp.
	if attachment.IsWarm(a.Owner) && a.Rec != op.before && len(a.shared.warm) > attachment.WarmLimit(e.opts.WarmLeases) {
		a.shared.workqueue.add(a)
	}
	for _, other := range op.doubted {
		other.shared.workqueue.add(other)
	}
}

func backoff(failures int) time.Duration {
	d := maxRetryDelay
	if failures < 10 {
		d = min(d, minRetryDelay<<(failures-1))
	}
	return d + rand.N(d/4)
}

// lookUpRounds looks up the held attachments, a page at a time, until Stop.
func (e *Engine) lookUpRounds() {
	for e.wait(lookupInterval + rand.N(lookupInterval/4)) {
		for last, more := (attachment.Key{}), true; more; more = more && e.wait(lookupPause) {
			held := map[*entry]*attachment.Record{}
			last, more = e.page(last, func(a *entry) {
				if a.Rec.State == attachment.Held && !a.Lost && a.Failures == 0 {
					held[a] = a.Rec
				}
			})
			for a, r := range held {
				e.lookUp(a, r)
			}
		}
	}
}

// wait waits for a duration, and reports whether the engine runs.
func (e *Engine) wait(d time.Duration) bool {
	select {
	case <-e.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// lookUp causes a verification if the plugin's store lacks an address of a record.
func (e *Engine) lookUp(a *entry, r *attachment.Record) {
	inv := r.Invocations[len(r.Invocations)-1]
	if attachment.IsWarm(a.Owner) { // which may have become unwanted, too
		a.shared.workqueue.add(a)
	}
	if !inv.StoreProven {
		return
	}
	if held, err := e.plugin.Holds(inv, r.Addrs()); held || err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.Rec == r { // not changed meanwhile
		a.doubted = true
		a.shared.workqueue.add(a)
	}
}
