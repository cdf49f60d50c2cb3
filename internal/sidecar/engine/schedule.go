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

// reportBackground reports completed background work. A verified attachment and work that is
// still pending are not reported.
func (op *operation) reportBackground(was Attachment, families []record.Family, err error) {
	if err == nil && op.pending() {
		return
	}
	if op.action != "" {
		op.engine.actionDone(op.action, op.entry.pool, families, errors.Join(err, op.reacquireError()))
	}
	switch {
	case err != nil:
		op.outcomeLogger(was.Addrs()).WithError(err).Warn("Background work failed; it is retried")
	case op.action != "" && op.action != ActionReacquire: // which logs its own outcome
		op.outcomeLogger(was.Addrs()).Info("Background work done")
	}
}

// pending reports whether the work continues later: an earlier ADD may still act, so a last DEL
// follows.
func (op *operation) pending() bool {
	if op.entry.rec == nil {
		return false
	}
	switch op.action {
	case ActionExpire:
		return op.expired()
	case ActionRetire, ActionCleanup:
		return op.entry.rec.State == record.Releasing
	}
	return false
}

// reacquireError returns why a reacquisition without an error failed: addresses that cannot be
// requested are left to the owner's next request.
func (op *operation) reacquireError() error {
	if op.action == ActionReacquire && op.describe().Lost {
		return errors.New("these addresses cannot be requested from the plugin")
	}
	return nil
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
		if !op.client || !op.hasOldIDs() {
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

// hasOldIDs reports whether a held attachment has invocations of earlier container IDs, which need a DEL.
func (op *operation) hasOldIDs() bool {
	if op.entry.rec == nil || op.entry.rec.State != record.Held {
		return false
	}
	live := op.lastInvocation().ContainerID
	return slices.ContainsFunc(op.entry.rec.Invocations, func(c call.Invocation) bool { return c.ContainerID != live })
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
