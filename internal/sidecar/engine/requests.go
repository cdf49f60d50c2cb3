package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// generatedOwnerPrefix begins the owner of an attachment that was requested without one.
const generatedOwnerPrefix = "anonymous/"

// Allocate returns the attachment of an owner, created if necessary, with the family claimed.
// Errors are *Error; the returned Attachment then identifies the attachment as far as it is
// known, for the log.
func (e *Engine) Allocate(ctx context.Context, r AllocateRequest) (Attachment, error) {
	families := e.requestedFamilies(r.Family)
	req := request{
		action: ActionAllocate, families: families, generated: r.Owner == "",
		work: func(op *operation) error { return op.allocate(r.Family, r.Expire) },
		fulfilled: func(op *operation) bool {
			return op.fulfilled(acquireRequest{families: families, anyFamily: r.Family == ""})
		},
	}
	if r.Family != "" && !e.enabled(r.Family) {
		return e.reject(req, r.Pool, familyDisabledError(fmt.Sprintf("owner %q", r.Owner), r.Family))
	}
	k, err := e.authorize(r.Owner, r.Pool)
	if err != nil {
		return e.reject(req, r.Pool, err)
	}
	return e.run(ctx, k, req)
}

// Restore allocates exactly one address to the owner, or fails without a change. It returns
// and fails as Allocate does.
func (e *Engine) Restore(ctx context.Context, r RestoreRequest) (Attachment, error) {
	family := record.FamilyOf(r.IP)
	req := request{
		action: ActionRestore, families: []record.Family{family}, generated: r.Owner == "",
		work: func(op *operation) error { return op.restore(r.IP, r.Also) },
		fulfilled: func(op *operation) bool {
			return op.fulfilled(acquireRequest{required: []netip.Addr{r.IP}, families: []record.Family{family}})
		},
	}
	if !e.enabled(family) {
		return e.reject(req, r.Pool, familyDisabledError("address "+r.IP.String(), family))
	}
	k, err := e.authorize(r.Owner, r.Pool)
	if err != nil {
		return e.reject(req, r.Pool, err)
	}
	return e.run(ctx, k, req)
}

// Release releases one address; the attachment is released with its last one. It returns the
// attachment as it is afterwards, and fails as Allocate does.
func (e *Engine) Release(ctx context.Context, r ReleaseRequest) (Attachment, error) {
	pool, family := e.poolOrDefault(r.Pool), record.FamilyOf(r.IP)
	req := request{
		action: ActionRelease, families: []record.Family{family},
		work: func(op *operation) error { return op.releaseAddress(r.IP, r.SkipDelay) },
	}
	k, _, ok := e.holder(pool, r.IP)
	if ok { // an address of a family that was disabled later can still be released
		return e.run(ctx, k, req)
	}
	if !e.enabled(family) {
		return e.reject(req, pool, familyDisabledError("address "+r.IP.String(), family))
	}
	if err := e.checkPool(pool, true); err != nil {
		return e.reject(req, pool, err)
	}
	return e.reject(req, pool, notFoundError(pool, r.IP))
}

// RejectOwner makes requests of an owner fail with why, for example if only a newer version of
// the program can read its record. It must be called before Start.
func (e *Engine) RejectOwner(pool, owner string, why error) { e.rejected[key{pool, owner}] = why }

// authorize returns the key of an owner in a pool, or why it is not served.
func (e *Engine) authorize(owner, pool string) (key, error) {
	if owner == "" {
		owner = generatedOwnerPrefix + uuid.NewString()
	}
	if keepsExcluded(owner) {
		return key{}, newError(Forbidden, "owner %q: the owners that begin with %q keep the addresses of --exclude-addresses; expected another owner", owner, excludedOwnerPrefix)
	}
	if !e.opts.Owners.Match(owner) {
		return key{}, newError(Forbidden, "owner %q is not admitted by --owners", owner)
	}
	k := key{e.poolOrDefault(pool), owner}
	if why := e.rejected[k]; why != nil {
		return key{}, newError(Failed, "%s is not served: %w", k, why)
	}
	return k, e.checkPool(k.pool, false)
}

// reject fails a request before it reaches an attachment.
func (e *Engine) reject(req request, pool string, err error) (Attachment, error) {
	e.actionDone(req.action, e.poolOrDefault(pool), req.families, err)
	return Attachment{}, err
}

func (e *Engine) poolOrDefault(pool string) string { return cmp.Or(pool, e.opts.DefaultPool) }

func familyDisabledError(what string, f record.Family) error {
	return newError(FamilyDisabled, "%s: family %s is disabled (--enable-%s)", what, f, f)
}

func notFoundError(pool string, ip netip.Addr) error {
	return newError(NotFound, "address %s is not allocated in pool %q", ip, pool)
}

func stoppingError(k key) error {
	return &Error{Kind: Stopping, RetryAfter: retryAfter, Err: fmt.Errorf("%s: the service is stopping; try again", k)}
}

// Leftover is an invocation of a discarded attachment. The plugin may keep its addresses.
type Leftover struct {
	call.Invocation
	// Command is a shell command that runs its DEL.
	Command string
}

// Discard releases the attachment of an owner. If a DEL fails, it is removed anyway, and the
// leftovers are its invocations. It fails as Allocate does; then the attachment is kept.
func (e *Engine) Discard(ctx context.Context, pool, owner string) (Attachment, []Leftover, error) {
	k := key{e.poolOrDefault(pool), owner}
	var left []Leftover
	req := request{action: ActionDiscard, families: e.requestedFamilies(""), work: func(op *operation) (err error) {
		left, err = op.discard()
		return err
	}}
	if _, ok := e.Record(k.pool, owner); !ok {
		a, err := e.reject(req, k.pool, newError(NotFound, "%s has no attachment", k))
		return a, nil, err
	}
	a, err := e.run(ctx, k, req)
	if err != nil {
		return a, nil, err // the work may go on
	}
	return a, left, nil
}

// retryAfter is the suggested wait before a retry where no better figure is known.
const retryAfter = 5 * time.Second

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
