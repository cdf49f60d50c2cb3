package engine

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
)

// Retries of background work wait minRetryDelay, doubled with each failure up to maxRetryDelay,
// plus up to a quarter, so that many attachments do not query a failing plugin in step.
const (
	minRetryDelay = time.Second
	maxRetryDelay = 5 * time.Minute
)

// schedule sets the timer for the next reconciliation, and has the doubted attachments verified.
func (op *operation) schedule() {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	a := op.entry
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	if due, ok := op.protocol.Due(time.Now()); ok && !op.engine.stopping {
		a.timer = time.AfterFunc(time.Until(due), func() { a.shared.workqueue.add(a) })
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

// reportBackground reports completed background work. A verified attachment is not reported, and
// neither is work that continues later: an earlier ADD may still act, so a last DEL follows.
func (op *operation) reportBackground(was Attachment, families []attachment.Family, err error) {
	r := op.entry.Rec
	switch {
	case err == nil && (op.protocol.Action == "" || r != nil && (op.protocol.Expired(time.Now()) || op.protocol.Action != attachment.Expire && r.State == attachment.Releasing)):
		return
	case err != nil || op.protocol.Action != attachment.Reacquire: // which logs its own success
		op.logOutcome(was.Addrs(), err, "Background work done", "Background work failed; it is retried")
	case op.entry.Lost: // the owner's next request gets others
		err = errors.New("these addresses cannot be requested from the plugin")
	}
	if op.protocol.Action != "" {
		op.engine.actionDone(op.protocol.Action, op.entry.Pool, families, err)
	}
}

// recordResult records how the work on an attachment ended.
func (op *operation) recordResult(err error) {
	waited := err != nil && op.canceled() && !op.hasProcess
	op.protocol.Finish(err, op.client, waited, backoff)
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	switch {
	case err == nil && op.entry.Failures == 0:
		op.entry.lastErr = ""
		op.engine.resolveFailure(op.entry.Key)
	case err != nil && !waited && !attachment.IsRejection(err):
		op.entry.lastErr = withoutKey(err, op.entry.Key)
		op.engine.setFailure(Failure{Owner: op.entry.Owner, Pool: op.entry.Pool, ContainerID: op.entry.IDInUse(), Text: err.Error(), At: time.Now()})
	}
}

// withoutKey returns the text of an error without owner and pool at its start: the error of an
// attachment is shown with both.
func withoutKey(err error, k attachment.Key) string {
	text := err.Error()
	if rest, ok := strings.CutPrefix(text, k.String()); ok {
		return strings.TrimLeft(rest, ": ")
	}
	return text
}

// finish returns the plugin process and schedules the next reconciliation.
func (op *operation) finish() {
	if op.hasProcess {
		op.processes().release()
		op.endCalls()
	}
	op.schedule()
}
