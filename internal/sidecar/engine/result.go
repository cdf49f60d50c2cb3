package engine

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// Log fields, in Cilium's spelling.
const (
	fieldOwner       = "owner"
	fieldPool        = "poolName"
	fieldContainerID = "containerID"
	fieldIPAddrs     = "ipAddrs"
	fieldOther       = "other"
	fieldAction      = "action"
	fieldDuration    = "duration"
)

// logger adds owner, pool and container ID to each line.
func (e *Engine) logger(a *entry) logrus.FieldLogger {
	return e.opts.Log.WithFields(logrus.Fields{fieldOwner: a.owner, fieldPool: a.pool, fieldContainerID: a.idInUse()})
}

func (op *operation) log() logrus.FieldLogger {
	return logging.ForRequest(op.callCtx(), op.engine.logger(op.entry))
}

// outcomeLogger adds action, addresses and duration.
func (op *operation) outcomeLogger(ips []netip.Addr) logrus.FieldLogger {
	return op.log().WithFields(logrus.Fields{fieldAction: op.action, fieldIPAddrs: ips, fieldDuration: time.Since(op.started)})
}

// logOutcome writes the line of a request whose client does not receive the response.
func (op *operation) logOutcome(ips []netip.Addr, err error, message string) {
	if err != nil {
		op.outcomeLogger(ips).WithError(err).Warn(message)
		return
	}
	op.outcomeLogger(ips).Info(message)
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
		if op.background() || !op.hasOldIDs() {
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
	if op.background() || op.entry.failures == 0 { // a client that repeats its request postpones nothing
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

// setLost records that the plugin does not hold the attachment, and logs it once.
func (op *operation) setLost(why error) {
	op.engine.mu.Lock()
	first := !op.entry.lost
	op.entry.lost, op.entry.verified = true, time.Time{}
	if first {
		op.engine.count(func(c *Counters) { c.Lost++ })
	}
	op.engine.mu.Unlock()
	if first {
		op.outcomeLogger(op.addresses()).WithError(why).Error("Lost: the plugin does not hold the allocated addresses")
	}
}

// setReacquired records that the plugin holds the attachment since just now. A changed address
// is not a reacquisition: its owner gets another one.
func (op *operation) setReacquired(changed bool) {
	op.engine.mu.Lock()
	op.entry.lost = op.entry.lost && !changed
	op.engine.mu.Unlock()
	op.setVerified()
}

// setVerified records that the plugin holds the attachment.
func (op *operation) setVerified() {
	op.engine.mu.Lock()
	reacquired := op.entry.lost
	op.entry.lost, op.entry.conflict, op.entry.verified, op.entry.recovered = false, false, time.Now(), true
	if reacquired {
		op.engine.count(func(c *Counters) { c.Reacquired++ })
	}
	op.engine.mu.Unlock()
	if reacquired || op.action == ActionReacquire {
		op.outcomeLogger(op.addresses()).Info("Reacquired: the plugin holds the attachment again")
	}
}

func (op *operation) lastVerified() time.Time {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	if op.entry.doubted {
		return time.Time{}
	}
	return op.entry.verified
}

// clearDoubt begins a verification: a duplicate that is found from now on requires another one.
func (op *operation) clearDoubt() {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	if op.entry.doubted {
		op.entry.doubted, op.entry.verified, op.entry.recovered = false, time.Time{}, false
	}
}

func (op *operation) isRecovered() bool {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	return op.entry.recovered && !op.entry.doubted
}

func (op *operation) setRecovered() {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	op.entry.recovered = true
}

// setUsed records that a request holds the lock.
func (op *operation) setUsed() {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	op.entry.lastUsed = time.Now()
}

// describe returns the current view of the attachment; without a record it only identifies it.
func (op *operation) describe() Attachment {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	if op.entry.rec == nil {
		return Attachment{Record: record.Record{Owner: op.entry.owner, Pool: op.entry.pool, ContainerID: op.entry.id}}
	}
	return op.entry.view()
}
