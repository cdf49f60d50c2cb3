package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

// operation is one piece of work on an attachment. It holds up to three things, which are acquired in this order: the
// lock of its entry (one operation at a time per attachment), a slot of the request queue (--max-queued-requests) and
// a plugin process of its pool (--max-plugin-processes).
type operation struct {
	attachment.Operation
	engine *Engine
	entry  *entry
	// waitCtx ends when nothing waits for the result any more. It ends the waits for the
	// entry's lock and for a plugin process, but never a plugin call.
	waitCtx context.Context
	// stays reports that it waits for the lock also if its client leaves: a release.
	stays bool
	// started is when the operation got the entry's lock, and before the record at that time.
	started time.Time
	before  *attachment.Record
	// client reports that a client requested the operation; otherwise it is background work.
	client bool
	// user is whose request it is. caller is set when it first needs a slot, and hasSlot reports that it
	// holds one of the request queue.
	user    User
	caller  *caller
	hasSlot bool
	// hasProcess reports that the operation holds a plugin process.
	hasProcess bool
	// requestID is the ID of the client's request; empty for background work.
	requestID string
	// calls is the context of its plugin calls from Process on, and endCalls ends it.
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

// canceled reports whether the client has left or the engine is stopping.
func (op *operation) canceled() bool { return op.waitCtx.Err() != nil || op.engine.ctx.Err() != nil }

// background begins background work on an attachment, until end. ctx ends the wait for the lock of its entry.
func (e *Engine) background(ctx context.Context, k attachment.Key) (*operation, error) {
	a, err := e.getOrCreate(k, User{})
	if err != nil {
		return nil, err
	}
	return e.workOn(ctx, a)
}

// workOn is background with a reference to the entry.
func (e *Engine) workOn(ctx context.Context, a *entry) (*operation, error) {
	op := &operation{Operation: attachment.Operation{Key: a.Key}, engine: e, entry: a, waitCtx: ctx}
	return op, op.waitForLock()
}

// tryLock takes the entry's lock if it is free, and reports whether it did.
func (op *operation) tryLock() bool {
	select {
	case op.entry.lock <- struct{}{}:
		op.begin()
		op.engine.opts.Observer.QueueWait(QueueEntry, 0)
		return true
	default:
		return false
	}
}

// waitForLock waits for the entry's lock. A request takes its queue slot if it must wait. A release waits
// also when its client has left, and when the engine is stopping: then its intent is recorded. After an error
// the reference to the entry is dropped.
func (op *operation) waitForLock() error {
	if op.tryLock() {
		return nil
	}
	err := op.acquireSlot()
	if err == nil {
		err = op.wait(QueueEntry, func(ctx context.Context) error {
			left := ctx.Done()
			if op.stays {
				left = nil
			}
			select {
			case op.entry.lock <- struct{}{}:
				op.begin()
				return nil
			case <-left:
				return ctx.Err()
			}
		})
	}
	if err != nil {
		op.unref()
	}
	return err
}

// begin begins the work on the locked entry, which takes over the doubts about it.
func (op *operation) begin() {
	e, a := op.engine, op.entry
	op.started = time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	a.VerifyDue = a.VerifyDue || a.doubted // also if this operation publishes nothing
	a.doubted = false
	op.Status, op.World, op.Opts, op.User, op.before = a.Status, world{op}, &e.opts.Options, a.user.recorded(), a.Rec
}

// end returns the plugin process, schedules the next work, releases the entry's lock and calls unref.
func (op *operation) end() {
	if op.endCalls != nil {
		op.processes().release()
		op.endCalls()
	}
	op.engine.schedule(op)
	<-op.entry.lock
	op.unref()
}

// unref returns the queue slot and drops the reference to the entry.
func (op *operation) unref() {
	op.engine.unref(op.entry)
	if op.hasSlot {
		op.engine.callers.queue[op.class()].release()
		op.caller.queued.Release(1)
	}
	if op.caller != nil {
		op.engine.callers.put(op.caller)
	}
}

// requestedBy returns the caller, with which the operation shares slots until its end.
func (op *operation) requestedBy() *caller {
	if op.caller == nil {
		op.caller = op.engine.callers.get(op.Key, op.user)
	}
	return op.caller
}

func (op *operation) class() class { return op.user.class(op.Owner) }

// acquireSlot takes a slot of the request queue, once, or fails the request. A request that needs
// neither a wait nor the plugin takes none, so that held addresses are reported however long the queue
// is. Background work has no slot.
func (op *operation) acquireSlot() error {
	if !op.client || op.hasSlot {
		return nil
	}
	callers, by, c := op.engine.callers, op.requestedBy(), op.class()
	full := func(format string, args ...any) error {
		return &attachment.Error{Kind: attachment.Busy, RetryAfter: retryAfter, Err: fmt.Errorf("%s: %s (--max-queued-requests); try again", op, fmt.Sprintf(format, args...))}
	}
	if !by.queued.TryAcquire(1) {
		return full("%d requests of %s are queued or in progress, which is the limit", by.maxQueued, by)
	}
	if !callers.queue[c].tryAcquire() {
		by.queued.Release(1)
		return full("%d requests are queued or in progress, which is the limit for those of %s", callers.queued[c], by)
	}
	op.hasSlot = true
	return nil
}

// processes returns the slots of a plugin process that the operation needs.
func (op *operation) processes() slots {
	if !op.client {
		return op.entry.shared.background
	}
	return append(slots{op.requestedBy().turns}, op.entry.shared.processes[op.class()]...)
}

// Process waits for a plugin process, once per operation. An operation whose client has left ends here.
func (w world) Process() error {
	if w.hasProcess {
		return nil
	}
	if err := w.acquireSlot(); err != nil {
		return err
	}
	if err := w.engine.journal.Available(); err != nil {
		return fmt.Errorf("%s: %w; the plugin was not called", w, err)
	}
	if !w.canceled() && w.processes().tryAcquire() {
		w.engine.opts.Observer.QueueWait(QueueProcess, 0)
	} else if err := w.wait(QueueProcess, w.processes().acquire); err != nil {
		return err
	}
	w.hasProcess = true
	w.calls, w.endCalls = context.WithTimeout(context.Background(), w.engine.opts.Budget)
	return nil
}

// wait runs until and reports how long it took to the observer. The wait ends with the client
// and with the engine.
func (op *operation) wait(q Queue, until func(context.Context) error) error {
	ctx, cancel := context.WithCancel(op.waitCtx)
	defer cancel()
	defer context.AfterFunc(op.engine.ctx, cancel)()
	if op.engine.ctx.Err() != nil {
		cancel() // AfterFunc may run later
	}
	start := time.Now()
	op.engine.waiting[q].Add(1)
	defer op.engine.waiting[q].Add(-1)
	defer func() { op.engine.opts.Observer.QueueWait(q, time.Since(start)) }()
	return until(ctx)
}

// recordResult records how the work on an attachment ended.
func (op *operation) recordResult(err error) {
	waited := err != nil && op.canceled() && !op.hasProcess
	op.Finish(err, op.client, waited, backoff)
	e, a := op.engine, op.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil && a.Failures == 0:
		a.lastErr = ""
		e.stats.resolve(a.Key)
	case err != nil && !waited && !(op.client && attachment.IsRejection(err)):
		a.lastErr = withoutKey(err, a.Key)
		e.stats.fail(Failure{Owner: a.Owner, Pool: a.Pool, ContainerID: a.IDInUse(), Text: err.Error(), At: time.Now()})
	}
}
