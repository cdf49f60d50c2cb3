package engine

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
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
	Journal
	engine *Engine
	entry  *entry
	// protocol decides what is done.
	protocol attachment.Operation
	// waitCtx ends when nothing waits for the result any more. It ends the waits for the
	// entry's lock and for a plugin process, but never a plugin call.
	waitCtx context.Context
	// release reports that it is a client's release, which is carried out also if the client leaves.
	release bool
	// started is when the operation got the entry's lock.
	started time.Time
	// client reports that a client requested the operation; otherwise it is background work.
	client bool
	// user is whose request it is. caller is set when it first needs a slot, and hasSlot reports that it
	// holds one of the request queue.
	user    User
	caller  *caller
	hasSlot bool
	// hasProcess reports that the operation holds a plugin process.
	hasProcess bool
	// container has the parameters of a container runtime's request; nil for none.
	container *call.Container
	// requestID is the ID of the client's request; empty for background work.
	requestID string
	// calls is the context of its plugin calls from acquireProcess on, and endCalls ends it.
	calls    context.Context
	endCalls context.CancelFunc
	// doubted are attachments with an address that the plugin returned to this one, too.
	doubted []*entry
}

// callCtx returns the context of a plugin call. No call begins after its end, so that an operation
// does not last longer than Options.Budget and one call. A call that has begun ignores it: an
// abandoned one would leave an unknown outcome.
func (op *operation) callCtx() context.Context {
	return logging.WithRequestID(cmp.Or(op.calls, context.Background()), op.requestID)
}

func (op *operation) String() string { return op.entry.String() }

// canceled reports whether the client has left or the engine is stopping.
func (op *operation) canceled() bool { return op.waitCtx.Err() != nil || op.engine.ctx.Err() != nil }

// logger adds owner, pool and container ID to each line.
func (e *Engine) logger(a *entry) logrus.FieldLogger {
	return e.opts.Log.WithFields(logrus.Fields{fieldOwner: a.Owner, fieldPool: a.Pool, fieldContainerID: a.IDInUse()})
}

func (op *operation) log() logrus.FieldLogger {
	return logging.ForRequest(op.callCtx(), op.engine.logger(op.entry))
}

func (op *operation) outcomeLogger(ips []netip.Addr) logrus.FieldLogger {
	return op.log().WithFields(logrus.Fields{fieldAction: op.protocol.Action, fieldIPAddrs: ips, fieldDuration: time.Since(op.started)})
}

// logOutcome writes the line of work whose outcome no client receives.
func (op *operation) logOutcome(ips []netip.Addr, err error, success, failure string) {
	if err != nil {
		op.outcomeLogger(ips).WithError(err).Warn(failure)
		return
	}
	op.outcomeLogger(ips).Info(success)
}

// describe returns the current view of the attachment; without a record it only identifies it.
func (op *operation) describe() Attachment {
	if op.entry.Rec == nil {
		return Attachment{Record: attachment.Record{Owner: op.entry.Owner, Pool: op.entry.Pool, ContainerID: op.entry.IDInUse()}}
	}
	return op.entry.view()
}
