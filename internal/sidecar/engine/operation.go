package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// retryAfter is the suggested wait before a retry where no better figure is known.
const retryAfter = 5 * time.Second

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
	// slot is the slot of a request in the queue; nil for background work.
	slot *queueSlot
	// hasProcess and hasSecondProcess report that the operation holds plugin processes.
	hasProcess, hasSecondProcess bool
	// requestID is the ID of the client's request; empty for background work.
	requestID string
	// nested reports that the operation is part of one on another attachment, whose plugin process it
	// uses.
	nested bool
	// calls is the context of its plugin calls from acquireProcess on, and endCalls ends it.
	calls    context.Context
	endCalls context.CancelFunc
	// unconfirmed is the held record of an attachment that CHECK reported lost, until its DEL succeeds.
	unconfirmed *record.Record
	// offered reports that the plugin has just freed all addresses of the attachment, which is lost.
	offered bool
}

// callCtx returns the context of a plugin call. No call begins after its end, so that an operation
// does not last longer than Options.Budget and one call. A call that has begun ignores it: an
// abandoned one would leave an unknown outcome.
func (op *operation) callCtx() context.Context {
	if op.calls == nil {
		return logging.WithRequestID(context.Background(), op.requestID)
	}
	return logging.WithRequestID(op.calls, op.requestID)
}

// String identifies the attachment for errors.
func (op *operation) String() string {
	return op.entry.key.String()
}

// request is the request of a client.
type request struct {
	action   Action
	families []record.Family
	work     func(*operation) error
	// fulfilled reports whether there is nothing to do; nil if there always is.
	fulfilled func(*operation) bool
	// generated reports that the client gave no owner. If it leaves before it receives the
	// generated one, the attachment is released.
	generated bool
}

// run executes a request on the attachment of k, unless it is fulfilled already.
func (e *Engine) run(ctx context.Context, k key, req request) (Attachment, error) {
	a, err := e.getOrCreate(k)
	if err != nil {
		return e.reject(req, k.pool, err)
	}
	op := &operation{engine: e, entry: a, action: req.action, waitCtx: ctx, started: time.Now(), requestID: logging.RequestID(ctx)}
	locked := op.tryLock()
	if !locked || req.fulfilled == nil || !req.fulfilled(op) {
		return op.runDetached(ctx, req, locked)
	}
	defer op.unlock()
	defer op.finish()
	op.setUsed()
	e.actionDone(req.action, k.pool, req.families, nil)
	return op.describe(), nil
}

// runDetached executes a request that may take long. It returns when the work is done, the
// client has left or the budget is spent. In the last two cases work in progress continues and
// its outcome is recorded.
func (op *operation) runDetached(ctx context.Context, req request, locked bool) (Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, op.engine.opts.Budget)
	defer cancel()
	op.waitCtx, op.slot = ctx, &queueSlot{engine: op.engine, key: op.entry.key}
	if !locked {
		if err := op.waitForLock(); err != nil {
			op.slot.release()
			return op.engine.reject(req, op.entry.pool, op.engine.clientError(ctx, op.entry.key, err))
		}
		op.started = time.Now()
	}
	op.setUsed()

	type result struct {
		view Attachment
		err  error
	}
	done := make(chan result)
	go func() {
		defer op.slot.release()
		defer op.unlock()
		err := req.work(op)
		op.recordResult(err)
		reported := err
		if !op.hasProcess { // the wait for a plugin process may have failed
			reported = op.engine.clientError(ctx, op.entry.key, err)
		}
		op.engine.actionDone(req.action, op.entry.pool, req.families, reported)
		view := op.describe()
		select {
		case done <- result{view, err}:
		case <-ctx.Done():
			op.logOutcome(view.Addrs(), err, "Completed after the client had left")
			if req.generated && err == nil {
				op.waitCtx = op.engine.ctx
				op.recordResult(op.releaseLaterUnlessReleasing(op.release()))
			}
		}
		op.finish()
	}()
	select {
	case r := <-done:
		return r.view, op.engine.clientError(ctx, op.entry.key, r.err)
	case <-ctx.Done():
		return Attachment{}, op.engine.clientError(ctx, op.entry.key, ctx.Err())
	}
}

// clientError turns an error into the one that the client receives.
func (e *Engine) clientError(ctx context.Context, k key, err error) error {
	var known *Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case e.ctx.Err() != nil && errors.Is(err, context.Canceled):
		return stoppingError(k)
	case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		return &Error{Kind: Failed, Err: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &Error{Kind: Busy, RetryAfter: retryAfter, Err: fmt.Errorf(
			"%s: no result within %s; work in progress continues and is recorded, so a retry returns its result", k, e.opts.Budget)}
	default:
		return newError(Busy, "%s: the client has disconnected", k)
	}
}

// background reports whether no client requested the operation.
func (op *operation) background() bool { return op.slot == nil }

// canceled reports whether the client has left or the engine is stopping.
func (op *operation) canceled() bool { return op.waitCtx.Err() != nil || op.engine.ctx.Err() != nil }
