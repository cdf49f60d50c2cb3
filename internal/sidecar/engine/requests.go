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

type request struct {
	action   Action
	families []record.Family
	// want is what ActionAllocate and ActionRestore request.
	want want
	// ip and skipDelay are what ActionRelease releases, and how.
	ip        netip.Addr
	skipDelay bool
	// left receives the leftovers of ActionDiscard.
	left *[]Leftover
	// generated reports that the client gave no owner. If it leaves before it receives the
	// generated one, the attachment is released.
	generated bool
}

// Allocate returns the attachment of an owner, created if necessary, with the family claimed.
// Errors are *Error; the returned Attachment then identifies the attachment if it is known and the
// work on it has ended, for the log.
func (e *Engine) Allocate(ctx context.Context, r AllocateRequest) (Attachment, error) {
	families := e.requestedFamilies(r.Family)
	k, err := e.authorize(r.Owner, r.Pool)
	if r.Family != "" && !e.enabled(r.Family) {
		err = familyDisabledError(fmt.Sprintf("owner %q", r.Owner), r.Family)
	}
	return e.run(ctx, k, err, request{
		action: ActionAllocate, families: families, generated: r.Owner == "",
		want: want{families: families, anyFamily: r.Family == "", expires: r.Expire},
	})
}

// Restore allocates exactly one address to the owner, or fails without a change. It returns
// and fails as Allocate does.
func (e *Engine) Restore(ctx context.Context, r RestoreRequest) (Attachment, error) {
	families := []record.Family{record.FamilyOf(r.IP)}
	k, err := e.authorize(r.Owner, r.Pool)
	if !e.enabled(families[0]) {
		err = familyDisabledError("address "+r.IP.String(), families[0])
	}
	return e.run(ctx, k, err, request{
		action: ActionRestore, families: families, generated: r.Owner == "",
		want: want{families: families, required: []netip.Addr{r.IP}, also: r.Also},
	})
}

// Release releases one address; the attachment is released with its last one. It returns the
// attachment as it is afterwards, and fails as Allocate does.
func (e *Engine) Release(ctx context.Context, r ReleaseRequest) (Attachment, error) {
	pool, family := e.poolOrDefault(r.Pool), record.FamilyOf(r.IP)
	k, _, ok := e.holder(pool, r.IP)
	var err error
	switch unknownPool := e.checkPool(pool, true); {
	case ok: // an address of a family that was disabled later can still be released
	case !e.enabled(family):
		err = familyDisabledError("address "+r.IP.String(), family)
	case unknownPool != nil:
		err = unknownPool
	default:
		err = notFoundError(pool, r.IP)
	}
	k.pool = pool
	return e.run(ctx, k, err, request{action: ActionRelease, families: []record.Family{family}, ip: r.IP, skipDelay: r.SkipDelay})
}

// Discard releases the attachment of an owner. If a DEL fails, it is removed anyway, and the
// leftovers are its invocations. It fails as Allocate does; then the attachment is kept.
func (e *Engine) Discard(ctx context.Context, pool, owner string) (Attachment, []Leftover, error) {
	k := key{e.poolOrDefault(pool), owner}
	var left []Leftover
	var err error
	if _, ok := e.Record(k.pool, owner); !ok {
		err = newError(NotFound, "%s has no attachment", k)
	}
	a, err := e.run(ctx, k, err, request{action: ActionDiscard, families: e.requestedFamilies(""), left: &left})
	if err != nil {
		return a, nil, err // the work may go on
	}
	return a, left, nil
}

// Leftover is an invocation of a discarded attachment. The plugin may keep its addresses.
type Leftover struct {
	call.Invocation
	// Command is a shell command that runs its DEL.
	Command string
}

// Abandon releases the attachment of a generated owner whose client did not receive the
// response, without the release delay. It returns when the record is releasing; the DEL
// follows in the background. A failed write of the record is retried there. After Stop, the
// next start runs the DEL. ctx only identifies the request.
func (e *Engine) Abandon(ctx context.Context, pool, owner string) {
	e.mu.Lock()
	a := e.byOwner[key{pool, owner}]
	e.mu.Unlock()
	if a == nil {
		return
	}
	a.lock <- struct{}{}
	defer func() { <-a.lock }()
	if a.rec == nil || a.rec.State != record.Held {
		return // it is released already
	}
	op := &operation{engine: e, entry: a, action: ActionCleanup, waitCtx: e.ctx, started: time.Now(), requestID: logging.RequestID(ctx)}
	err := op.releaseLaterAfter(op.writeReleasing())
	const message = "Released, because its client did not read the response"
	op.logOutcome(op.addresses(), err, message, message)
	op.recordResult(err)
	op.schedule()
}

// RejectOwner makes requests of an owner fail with why, for example if only a newer version of
// the program can read its record. It must be called before Start.
func (e *Engine) RejectOwner(pool, owner string, why error) { e.rejected[key{pool, owner}] = why }

// authorize returns the key of an owner in a pool, and why it is not served.
func (e *Engine) authorize(owner, pool string) (key, error) {
	k := key{e.poolOrDefault(pool), owner}
	if owner == "" {
		k.owner = generatedOwnerPrefix + uuid.NewString()
	}
	switch why := e.rejected[k]; {
	case keepsExcluded(owner):
		return k, newError(Forbidden, "owner %q: the owners that begin with %q keep the addresses of --exclude-addresses; expected another owner", owner, excludedOwnerPrefix)
	case !e.opts.Owners.Match(k.owner):
		return k, newError(Forbidden, "owner %q is not admitted by --owners", k.owner)
	case why != nil:
		return k, newError(Failed, "%s is not served: %w", k, why)
	}
	return k, e.checkPool(k.pool, false)
}

// run executes a request on the attachment of k, unless it is rejected. It returns when the work is
// done, the client has left or the budget is spent. In the last two cases work in progress continues
// and its outcome is recorded.
func (e *Engine) run(ctx context.Context, k key, rejected error, req request) (Attachment, error) {
	a, err := (*entry)(nil), rejected
	if err == nil {
		a, err = e.getOrCreate(k)
	}
	if err != nil {
		e.actionDone(req.action, k.pool, req.families, err)
		return Attachment{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.Budget)
	defer cancel()
	op := &operation{engine: e, entry: a, client: true, action: req.action, waitCtx: ctx, requestID: logging.RequestID(ctx)}
	if err := op.waitForLock(); err != nil {
		err = e.clientError(ctx, k, err)
		e.actionDone(req.action, k.pool, req.families, err)
		return Attachment{}, err
	}
	done := make(chan result)
	go op.work(req, done)
	select {
	case r := <-done:
		return r.view, e.clientError(ctx, k, r.err)
	case <-ctx.Done():
		return Attachment{}, e.clientError(ctx, k, ctx.Err())
	}
}

type result struct {
	view Attachment
	err  error
}

// work does what a request wants, and sends its outcome unless the client has left.
func (op *operation) work(req request, done chan<- result) {
	defer op.unlock()
	defer op.finish()
	op.engine.mu.Lock()
	op.entry.lastUsed = time.Now()
	op.engine.mu.Unlock()
	var err error
	switch req.action {
	case ActionRelease:
		err = op.releaseAddress(req.ip, req.skipDelay)
	case ActionDiscard:
		*req.left, err = op.discard()
	default:
		err = op.allocate(req.want)
	}
	op.recordResult(err)
	reported := err
	if !op.hasProcess { // the wait for a plugin process may have failed
		reported = op.engine.clientError(op.waitCtx, op.entry.key, err)
	}
	op.engine.actionDone(req.action, op.entry.pool, req.families, reported)
	view := op.describe()
	select {
	case done <- result{view, err}:
	case <-op.waitCtx.Done():
		const message = "Completed after the client had left"
		op.logOutcome(view.Addrs(), err, message, message)
		if req.generated && err == nil {
			op.waitCtx = op.engine.ctx
			op.recordResult(op.releaseLaterAfter(op.release()))
		}
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

func (e *Engine) poolOrDefault(pool string) string { return cmp.Or(pool, e.opts.DefaultPool) }
