package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
)

// An operation holds up to three things: the lock of its entry (one operation at a time per
// attachment), a slot of the request queue (--max-queued-requests) and a plugin process of its pool
// (--max-plugin-processes). They are acquired in this order.

// requestedBy returns the caller, with which the operation shares slots until its end.
func (op *operation) requestedBy() *caller {
	if op.caller == nil {
		op.caller = op.engine.callers.get(op.entry.Key, op.user)
	}
	return op.caller
}

func (op *operation) class() class { return op.user.class(op.entry.Owner) }

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
		err = op.wait(QueueEntry, &op.engine.lockWaiters, func(ctx context.Context) error {
			left := ctx.Done()
			if op.release {
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

// begin begins the work on the locked entry.
func (op *operation) begin() {
	op.started = time.Now()
	op.protocol.Key, op.protocol.Status, op.protocol.World, op.protocol.Opts = op.entry.Key, op.entry.Status, op, &op.engine.opts.Options
	op.protocol.User = op.entry.user.recorded()
}

// unlock ends the operation: it releases the entry's lock and calls unref.
func (op *operation) unlock() {
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

// processes returns the slots of a plugin process that the operation needs.
func (op *operation) processes() slots {
	if !op.client {
		return op.entry.shared.background
	}
	return append(slots{op.requestedBy().turns}, op.entry.shared.processes[op.class()]...)
}

// acquireProcess waits for a plugin process, once per operation. An operation whose client has left ends
// here.
func (op *operation) acquireProcess() error {
	if op.hasProcess {
		return nil
	}
	if err := op.acquireSlot(); err != nil {
		return err
	}
	if free, err := op.tryProcess(); free || err != nil {
		return err
	}
	if err := op.wait(QueueProcess, &op.engine.processWaiters, func(ctx context.Context) error { return op.processes().acquire(ctx) }); err != nil {
		return err
	}
	op.gotProcess()
	return nil
}

// tryProcess takes a plugin process and a queue slot if both are free, and reports whether the operation has
// them.
func (op *operation) tryProcess() (bool, error) {
	if op.hasProcess {
		return true, nil
	}
	if err := op.engine.journal.Available(); err != nil {
		return false, fmt.Errorf("%s: %w; the plugin was not called", op, err)
	}
	if op.canceled() || op.acquireSlot() != nil || !op.processes().tryAcquire() {
		return false, nil
	}
	op.engine.opts.Observer.QueueWait(QueueProcess, 0)
	op.gotProcess()
	return true, nil
}

func (op *operation) gotProcess() {
	op.hasProcess = true
	op.calls, op.endCalls = context.WithTimeout(context.Background(), op.engine.opts.Budget)
}

// wait runs until and reports how long it took to the observer. The wait ends with the client
// and with the engine.
func (op *operation) wait(w Queue, waiting *atomic.Int64, until func(context.Context) error) error {
	ctx, cancel := context.WithCancel(op.waitCtx)
	defer cancel()
	defer context.AfterFunc(op.engine.ctx, cancel)()
	if op.engine.ctx.Err() != nil {
		cancel() // AfterFunc may run later
	}
	start := time.Now()
	waiting.Add(1)
	defer waiting.Add(-1)
	defer func() { op.engine.opts.Observer.QueueWait(w, time.Since(start)) }()
	return until(ctx)
}

// lockOther returns an operation on another attachment that uses the plugin process of op; nil if the
// engine is stopping or the other attachment is locked for longer than a time: the holder of its lock may
// wait for a process. The caller unlocks it.
func (op *operation) lockOther(k attachment.Key, wait time.Duration) *operation {
	a, err := op.engine.getOrCreate(k, User{})
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(op.engine.ctx, wait)
	defer cancel()
	other := &operation{engine: op.engine, Journal: op.engine.journal, entry: a, waitCtx: ctx, hasProcess: true, calls: op.calls}
	if other.waitForLock() != nil {
		return nil
	}
	other.waitCtx = op.engine.ctx
	return other
}
