package engine

import (
	"cmp"
	"context"
	"net/netip"
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

// operation is one piece of work on an attachment. It holds the entry's lock while it works.
type operation struct {
	engine *Engine
	entry  *entry
	action Action
	// waitCtx ends when nothing waits for the result any more. It ends the waits for the
	// entry's lock and for a plugin process, but never a plugin call.
	waitCtx context.Context
	// started is when the operation got the entry's lock.
	started time.Time
	// client reports that a client requested the operation; otherwise it is background work. hasSlot
	// reports that it holds a slot of the request queue.
	client, hasSlot bool
	// hasProcess and hasSecondProcess report that the operation holds plugin processes.
	hasProcess, hasSecondProcess bool
	// requestID is the ID of the client's request; empty for background work.
	requestID string
	// calls is the context of its plugin calls from acquireProcess on, and endCalls ends it.
	calls    context.Context
	endCalls context.CancelFunc
	// unconfirmed is the held record of an attachment that CHECK reported lost, until its DEL succeeds.
	unconfirmed *record.Record
	// freed reports that the plugin has just freed all addresses of the attachment, which is lost.
	freed bool
	// holders are attachments with an address that the plugin returned to this one, too.
	holders []*entry
}

// callCtx returns the context of a plugin call. No call begins after its end, so that an operation
// does not last longer than Options.Budget and one call. A call that has begun ignores it: an
// abandoned one would leave an unknown outcome.
func (op *operation) callCtx() context.Context {
	return logging.WithRequestID(cmp.Or(op.calls, context.Background()), op.requestID)
}

func (op *operation) String() string { return op.entry.key.String() }

// canceled reports whether the client has left or the engine is stopping.
func (op *operation) canceled() bool { return op.waitCtx.Err() != nil || op.engine.ctx.Err() != nil }

// logger adds owner, pool and container ID to each line.
func (e *Engine) logger(a *entry) logrus.FieldLogger {
	return e.opts.Log.WithFields(logrus.Fields{fieldOwner: a.owner, fieldPool: a.pool, fieldContainerID: a.idInUse()})
}

func (op *operation) log() logrus.FieldLogger {
	return logging.ForRequest(op.callCtx(), op.engine.logger(op.entry))
}

func (op *operation) outcomeLogger(ips []netip.Addr) logrus.FieldLogger {
	return op.log().WithFields(logrus.Fields{fieldAction: op.action, fieldIPAddrs: ips, fieldDuration: time.Since(op.started)})
}

// logOutcome writes the line of work whose outcome no client receives.
func (op *operation) logOutcome(ips []netip.Addr, err error, success, failure string) {
	if err != nil {
		op.outcomeLogger(ips).WithError(err).Warn(failure)
		return
	}
	op.outcomeLogger(ips).Info(success)
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

// setVerified records that the plugin holds the attachment.
func (op *operation) setVerified() {
	op.engine.mu.Lock()
	reacquired := op.entry.lost
	op.entry.lost, op.entry.verified = false, time.Now()
	if reacquired {
		op.engine.count(func(c *Counters) { c.Reacquired++ })
	}
	op.engine.mu.Unlock()
	if reacquired || op.action == ActionReacquire {
		op.outcomeLogger(op.addresses()).Info("Reacquired: the plugin holds the attachment again")
	}
}

// describe returns the current view of the attachment; without a record it only identifies it.
func (op *operation) describe() Attachment {
	if op.entry.rec == nil {
		return Attachment{Record: record.Record{Owner: op.entry.owner, Pool: op.entry.pool, ContainerID: op.entry.id}}
	}
	return op.entry.view()
}

func (op *operation) call(inv call.Invocation) call.Call {
	return call.Call{Invocation: inv, Owner: op.entry.owner, Pool: op.entry.pool}
}

// lastInvocation returns the invocation of the last ADD.
func (op *operation) lastInvocation() call.Invocation {
	if len(op.entry.rec.Invocations) == 0 {
		return call.Invocation{}
	}
	return op.entry.rec.Invocations[len(op.entry.rec.Invocations)-1]
}

// addresses returns the recorded addresses; none without a record.
func (op *operation) addresses() []netip.Addr { return op.entry.rec.Addrs() }

// recentlyVerified reports whether the plugin confirmed the record within VerifyInterval.
func (op *operation) recentlyVerified() bool {
	last := op.entry.verified
	return !op.entry.verifyDue.Load() && op.entry.rec.BootID == op.engine.opts.BootID && !last.IsZero() && time.Since(last) < op.engine.opts.VerifyInterval
}
