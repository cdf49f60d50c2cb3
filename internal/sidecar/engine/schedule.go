package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// Retries of background work wait minRetryDelay, doubled with each failure up to maxRetryDelay,
// plus up to a quarter, so that many attachments do not query a failing plugin in step.
const (
	minRetryDelay = time.Second
	maxRetryDelay = 5 * time.Minute
	// wholeRetries is how often all claimed addresses of a lost attachment are requested, before each is
	// requested without the others: about 15 s.
	wholeRetries = 4
)

// expired reports whether an allocation was not confirmed in time.
func (op *operation) expired() bool {
	claimed := op.entry.rec.State == record.Held || op.entry.rec.State == record.Adding && len(op.entry.rec.Claims) > 0
	return claimed && op.entry.rec.Expiration != nil && !time.Now().Before(op.entry.rec.Expiration.Deadline)
}

// schedule sets the timer for the next reconciliation.
func (op *operation) schedule() {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	a := op.entry
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	if due, ok := op.nextDue(); ok && !op.engine.stopping {
		a.timer = time.AfterFunc(time.Until(due), func() { a.shared.workqueue.add(a) })
	}
}

// nextDue returns when the attachment must be reconciled, if ever.
func (op *operation) nextDue() (due time.Time, ok bool) {
	r, failing := op.entry.rec, op.entry.failures > 0
	if r == nil {
		return time.Time{}, false
	}
	var times []time.Time
	switch {
	case failing:
		times = append(times, op.entry.retryAt)
	case r.State == record.Adding && !op.entry.waitsForOwner, r.State == record.Releasing:
		times = append(times, op.addActsUntil())
	case r.State == record.Cooldown:
		times = append(times, r.ReleaseAt)
	case r.State == record.Tombstone:
		times = append(times, r.LateDel.Until)
	case r.State == record.Held:
		for _, inv := range op.oldIDs() {
			times = append(times, inv.AddActsUntil)
		}
	}
	if r.Expiration != nil && !(failing && op.expired()) {
		times = append(times, r.Expiration.Deadline)
	}
	if len(times) == 0 {
		return time.Time{}, false
	}
	return slices.MinFunc(times, time.Time.Compare), true
}

// oldIDs returns the invocations of earlier ADDs under other container IDs, which need a DEL. One
// under the same ID waits for the release: its DEL would free the held addresses.
func (op *operation) oldIDs() []call.Invocation {
	live := op.lastInvocation().ContainerID
	return slices.DeleteFunc(slices.Clone(op.entry.rec.Invocations), func(inv call.Invocation) bool { return inv.ContainerID == live })
}

func backoff(failures int) time.Duration {
	d := maxRetryDelay
	if failures < 10 {
		d = min(d, minRetryDelay<<(failures-1))
	}
	return d + rand.N(d/4)
}

// reportBackground reports completed background work. A verified attachment is not reported, and
// neither is work that continues later: an earlier ADD may still act, so a last DEL follows.
func (op *operation) reportBackground(was Attachment, families []record.Family, err error) {
	r := op.entry.rec
	switch {
	case err == nil && (op.action == "" || r != nil && (op.expired() || op.action != ActionExpire && r.State == record.Releasing)):
		return
	case err != nil || op.action != ActionReacquire: // which logs its own success
		op.logOutcome(was.Addrs(), err, "Background work done", "Background work failed; it is retried")
	case op.entry.lost: // the owner's next request gets others
		err = errors.New("these addresses cannot be requested from the plugin")
	}
	if op.action != "" {
		op.engine.actionDone(op.action, op.entry.pool, families, err)
	}
}

// recordResult records how the work on an attachment ended. A rejection by a rule of the engine,
// and a client that left the queue, are not errors of the attachment; but if it was found to be lost
// before, it must be reacquired. A request does not end the DELs of earlier container IDs, so they
// stay as they are.
func (op *operation) recordResult(err error) {
	var refusal *Error
	rejected := errors.As(err, &refusal) || err != nil && op.canceled() && !op.hasProcess
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	switch {
	case err == nil:
		if !op.client || op.entry.rec == nil || op.entry.rec.State != record.Held || len(op.oldIDs()) == 0 {
			op.entry.lastErr, op.entry.failures = "", 0
			op.engine.resolveFailure(op.entry.key)
		}
		return
	case !rejected:
		op.entry.lastErr = withoutKey(err, op.entry.key)
		op.engine.setFailure(Failure{Owner: op.entry.owner, Pool: op.entry.pool, ContainerID: op.entry.idInUse(), Text: err.Error(), At: time.Now()})
	case !op.entry.lost:
		return
	}
	if !op.client || op.entry.failures == 0 { // a client that repeats its request postpones nothing
		op.entry.failures++
		op.entry.retryAt = time.Now().Add(backoff(op.entry.failures))
	}
}

// withoutKey returns the text of an error without owner and pool at its start: the error of an
// attachment is shown with both.
func withoutKey(err error, k key) string {
	text := err.Error()
	if rest, ok := strings.CutPrefix(text, k.String()); ok {
		return strings.TrimLeft(rest, ": ")
	}
	return text
}

// finish returns the plugin process and schedules the next reconciliation.
func (op *operation) finish() {
	if op.hasProcess {
		op.processes().Release(1)
		op.endCalls()
	}
	op.schedule()
}
