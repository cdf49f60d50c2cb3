package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// releaseAddress drops the claim of an address, and releases the attachment with the last
// claim: one DEL frees all families.
func (op *operation) releaseAddress(ip netip.Addr, skipDelay bool) error {
	// The address may have a new owner since the wait for the lock.
	if op.entry.rec == nil || !op.entry.rec.Holds(ip) {
		return notFoundError(op.entry.pool, ip)
	}
	if op.entry.rec.State == record.Releasing || op.entry.rec.State == record.Cooldown && skipDelay {
		return op.release()
	}
	if keepsExcluded(op.entry.owner) {
		return op.release() // no client has it, so nothing cools down
	}
	f := record.FamilyOf(ip)
	if !op.entry.rec.Claimed(f) {
		return notFoundError(op.entry.pool, ip)
	}
	r := op.entry.rec.Clone()
	r.Claims = slices.DeleteFunc(r.Claims, func(c record.Family) bool { return c == f })
	if len(r.Claims) > 0 {
		return op.write(r)
	}
	if skipDelay {
		return op.release()
	}
	return op.unclaim()
}

// unclaim drops every claim: the attachment enters cooldown, or is released.
func (op *operation) unclaim() error {
	if op.engine.opts.ReleaseDelay <= 0 || op.entry.rec.State != record.Held {
		return op.release()
	}
	r := op.entry.rec.Clone()
	r.State, r.Claims, r.Expiration = record.Cooldown, nil, nil
	r.ReleaseAt = time.Now().Add(op.engine.opts.ReleaseDelay)
	return op.write(r)
}

// release writes releasing, runs a DEL with every invocation and removes the record.
func (op *operation) release() error {
	if err := op.acquireProcess(); err != nil {
		return err
	}
	op.addConfigured()
	defer op.prestart(op.releaseCalls())()
	if err := op.writeReleasing(); err != nil {
		return fmt.Errorf("%s: %w; the plugin was not called", op, err)
	}
	addsEnded := op.addsEnded()
	if err := op.delAll(op.entry.rec.Invocations); err != nil {
		return fmt.Errorf("%s could not be released; the DEL is retried in the background: %w", op, err)
	}
	if !addsEnded {
		return nil // a last DEL follows when no ADD can act any more
	}
	return op.removeRecord()
}

// releaseCalls returns the calls of a release: DEL with each invocation, newest first.
func (op *operation) releaseCalls() []call.Upcoming {
	var calls []call.Upcoming
	for _, c := range slices.Backward(op.entry.rec.Invocations) {
		calls = append(calls, call.Upcoming{Verb: call.VerbDel, Call: op.call(c)})
	}
	return calls
}

// writeReleasing makes the state releasing durable, in this boot, because a DEL may act from
// then on.
func (op *operation) writeReleasing() error {
	if op.entry.rec.State == record.Releasing && !op.entry.dirty && op.entry.rec.BootID == op.engine.opts.BootID {
		return nil
	}
	r := op.entry.rec.Clone()
	r.State, r.Claims, r.Expiration, r.ReleaseAt, r.BootID = record.Releasing, nil, nil, time.Time{}, op.engine.opts.BootID
	return op.write(r)
}

// addConfigured adds to each invocation whose ADDs the plugin refused the one of an ADD today: the
// plugin may refuse the recorded DEL for the same reason, such as a profile that named no pod.
func (op *operation) addConfigured() {
	for _, c := range op.entry.rec.Invocations {
		if !c.AddRefused {
			continue
		}
		network, err := op.engine.plugin.Network(op.entry.pool)
		if err != nil {
			return
		}
		inv, err := op.engine.plugin.NewInvocation(op.callCtx(), network, c.ContainerID, op.entry.owner)
		if err != nil || slices.ContainsFunc(op.entry.rec.Invocations, inv.Equal) {
			continue
		}
		inv.AddRefused = true // there was none
		r := op.entry.rec.Clone()
		r.Invocations = append(r.Invocations, inv)
		op.setRecord(r)
		op.entry.dirty = true // the disk lacks it
	}
}

// delAll runs DEL with each invocation, newest first, because that one holds the addresses. The
// record keeps them all: the caller removes it as a whole. If the plugin refused the ADDs and the DEL
// of an invocation, the DEL of another one of the same attachment suffices.
func (op *operation) delAll(invocations []call.Invocation) error {
	errs := make([]error, len(invocations))
	var done []call.Invocation
	for i, c := range slices.Backward(invocations) {
		if errs[i] = op.del(c); errs[i] == nil {
			done = append(done, c)
		}
	}
	for i, c := range invocations {
		if c.AddRefused && isRefused(errs[i]) && slices.ContainsFunc(done, c.SameAttachment) {
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}

// Abandon releases the attachment of a generated owner whose client did not receive the
// response, without the release delay. It returns when the record is releasing; the DEL
// follows in the background. A failed write of the record is retried there. After Stop, the
// next start runs the DEL. ctx is that of the request, and only identifies it.
func (e *Engine) Abandon(ctx context.Context, pool, owner string) {
	e.mu.Lock()
	a := e.byOwner[key{pool, owner}]
	e.mu.Unlock()
	if a == nil {
		return
	}
	a.lock <- struct{}{}
	defer func() { <-a.lock }()
	op := &operation{engine: e, entry: a, action: ActionCleanup, waitCtx: e.ctx, started: time.Now(), requestID: logging.RequestID(ctx)}
	if a.rec == nil || a.rec.State != record.Held {
		return // it is released already
	}
	err := op.releaseLaterUnlessReleasing(op.writeReleasing())
	op.logOutcome(op.addresses(), err, "Released, because its client did not read the response")
	op.recordResult(err)
	op.schedule()
}

// releaseLaterUnlessReleasing makes later reconciliations release an attachment whose record could
// not be written. It returns err.
func (op *operation) releaseLaterUnlessReleasing(err error) error {
	if err != nil && op.entry.rec != nil && op.entry.rec.State != record.Releasing {
		op.engine.mu.Lock()
		defer op.engine.mu.Unlock()
		op.entry.releaseAs = ActionCleanup
	}
	return err
}
