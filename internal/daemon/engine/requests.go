package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// request is what a client requests for one attachment.
type request struct {
	action   attachment.Action
	families []attachment.Family
	// user sent it; unknown and irrelevant for a container interface.
	user User
	// container has the parameters of a container runtime; nil for another client.
	container *call.Container
	// do does it.
	do func(*operation) error
	// generated reports that the client gave no owner. If it leaves before it receives the
	// generated one, the attachment is released.
	generated bool
}

// Allocate returns the attachment of an owner, created if necessary, with the family claimed.
// Errors are *attachment.Error; the returned Attachment then identifies the attachment if it is known and the
// work on it has ended, for the log.
func (e *Engine) Allocate(ctx context.Context, r AllocateRequest) (Attachment, error) {
	families := e.requestedFamilies(r.Family)
	k, err := e.authorize(r.Owner, r.Pool)
	if r.Family != "" && !e.opts.Enabled(r.Family) {
		err = familyDisabledError(fmt.Sprintf("owner %q", r.Owner), r.Family)
	}
	want := attachment.Want{Families: families, Any: r.Family == "", Expires: r.Expire}
	return e.run(ctx, k, err, request{
		action: attachment.Allocate, families: families, user: r.User, generated: r.Owner == "",
		do: func(op *operation) error { return op.Allocate(want) },
	})
}

// Restore allocates exactly one address to the owner, or fails without a change. It returns
// and fails as Allocate does.
func (e *Engine) Restore(ctx context.Context, r RestoreRequest) (Attachment, error) {
	families := []attachment.Family{attachment.FamilyOf(r.IP)}
	k, err := e.authorize(r.Owner, r.Pool)
	if !e.opts.Enabled(families[0]) {
		err = familyDisabledError("address "+r.IP.String(), families[0])
	}
	want := attachment.Want{Families: families, Required: []netip.Addr{r.IP}, Also: r.Also}
	return e.run(ctx, k, err, request{
		action: attachment.Restore, families: families, user: r.User, generated: r.Owner == "",
		do: func(op *operation) error { return op.Allocate(want) },
	})
}

// Release releases one address; the attachment is released with its last one. It returns the
// attachment as it is afterwards, with the addresses that it had, and fails as Allocate does.
func (e *Engine) Release(ctx context.Context, r ReleaseRequest) (Attachment, error) {
	pool, family := e.poolOrDefault(r.Pool), attachment.FamilyOf(r.IP)
	k, ok := e.holder(pool, r.Owner, r.IP)
	var err error
	switch unknownPool := e.checkPool(pool, true); {
	case ok && !ofAPI(k.Owner) && r.User.Ordinary:
		err = attachment.NewError(attachment.Forbidden, "address %s is of a container, or was acquired ahead for one (owner %q), which only root and the daemon's own user may release", r.IP, k.Owner)
	case ok: // an address of a family that was disabled later can still be released
	case !e.opts.Enabled(family):
		err = familyDisabledError("address "+r.IP.String(), family)
	case unknownPool != nil:
		err = unknownPool
	case r.Owner != "":
		err = attachment.NewError(attachment.NotFound, "owner %q has no address %s in pool %q", r.Owner, r.IP, pool)
	default:
		err = attachment.NotFoundError(pool, r.IP)
	}
	k.Pool = pool
	return e.run(ctx, k, err, request{
		action: attachment.Release, families: []attachment.Family{family}, user: r.User,
		do: func(op *operation) error { return op.Release(r.IP, r.SkipDelay) },
	})
}

// authorize returns the attachment.Key of an owner in a pool, and why it is not served.
func (e *Engine) authorize(owner, pool string) (attachment.Key, error) {
	k := attachment.Key{Pool: e.poolOrDefault(pool), Owner: owner}
	if owner == "" {
		k.Owner = attachment.GeneratedOwnerPrefix + uuid.NewString()
	}
	switch {
	case attachment.IsWarm(owner):
		return k, attachment.NewError(attachment.Forbidden, "owner %q: the owners that begin with %q are leases that are acquired ahead for containers; expected another owner", owner, attachment.WarmOwnerPrefix)
	case attachment.OfContainer(owner):
		return k, attachment.NewError(attachment.Forbidden, "owner %q: the owners that begin with %q are container interfaces, which only delegated-ipam-cni adds; expected another owner", owner, attachment.ContainerOwnerPrefix)
	case !e.opts.Owners.Match(k.Owner):
		return k, attachment.NewError(attachment.Forbidden, "owner %q is not admitted by --owners", k.Owner)
	}
	return k, e.checkPool(k.Pool, false)
}

// run executes a request on the attachment of k, unless it is rejected. It returns when the work is
// done, the client has left or the budget is spent. In the last two cases work in progress continues,
// and a release that waits, too; the outcome is recorded.
func (e *Engine) run(ctx context.Context, k attachment.Key, rejected error, req request) (Attachment, error) {
	a, err := (*entry)(nil), rejected
	if err == nil {
		a, err = e.getOrCreate(k, req.user)
	}
	if err != nil {
		e.actionDone(req.action, k.Pool, req.families, err)
		return Attachment{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.Budget)
	defer cancel()
	op := &operation{engine: e, entry: a, client: true, user: req.user, waitCtx: ctx, requestID: logging.RequestID(ctx)}
	op.Key, op.Action, op.Container = k, req.action, req.container
	op.stays = req.action == attachment.Release || req.action == attachment.Cleanup
	done := make(chan result)
	go op.work(req, done)
	select {
	case r, answered := <-done:
		if answered {
			<-done // it is closed when the attachment is unlocked, so that a following request does not wait
			return r.view, e.clientError(ctx, k, r.err)
		}
	case <-ctx.Done():
	}
	return Attachment{}, e.clientError(ctx, k, ctx.Err())
}

type result struct {
	view Attachment
	err  error
}

// work does what a request wants, and sends its outcome unless the client has left. At its end it closes done.
func (op *operation) work(req request, done chan<- result) {
	defer close(done)
	if err := op.waitForLock(); err != nil {
		err = op.engine.clientError(op.waitCtx, op.Key, err)
		op.engine.actionDone(req.action, op.Pool, req.families, err)
		select {
		case done <- result{err: err}:
		case <-op.waitCtx.Done():
		}
		return
	}
	defer op.end()
	op.use(req.action)
	was := op.entry.view().Result
	err := req.do(op)
	op.use(req.action) // a list of containers that was made meanwhile may lack this one
	op.recordResult(err)
	reported := err
	if !op.hasProcess { // the wait for a plugin process may have failed
		reported = op.engine.clientError(op.waitCtx, op.Key, err)
	}
	op.engine.actionDone(req.action, op.Pool, req.families, reported)
	view := op.entry.view()
	if len(view.Result.Addresses) == 0 && op.stays {
		view.Result = was // what was freed, for the log
	}
	select {
	case done <- result{view, err}:
	case <-op.waitCtx.Done():
		const message = "Completed after the client had left"
		op.logOutcome(view.Addrs(), err, message, message)
		if req.generated && err == nil {
			op.waitCtx = op.engine.ctx
			op.recordResult(op.Return())
		}
	}
}

// use notes that a client uses the attachment. The release of a container that has ended is not a use.
func (op *operation) use(a attachment.Action) {
	if a != attachment.Cleanup {
		op.engine.mu.Lock()
		defer op.engine.mu.Unlock()
		op.entry.lastUsed = time.Now()
	}
}

// clientError turns an error into the one that the client receives.
func (e *Engine) clientError(ctx context.Context, k attachment.Key, err error) error {
	switch {
	case err == nil || attachment.IsRejection(err):
		return err
	case e.ctx.Err() != nil && errors.Is(err, context.Canceled):
		return stoppingError(k)
	case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		return &attachment.Error{Kind: attachment.Failed, Err: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &attachment.Error{Kind: attachment.Busy, RetryAfter: retryAfter, Err: fmt.Errorf(
			"%s: no result within %s; work in progress continues and is recorded, so a retry returns its result", k, e.opts.Budget)}
	default:
		return attachment.NewError(attachment.Busy, "%s: the client has disconnected", k)
	}
}

func (e *Engine) poolOrDefault(pool string) string { return cmp.Or(pool, e.opts.DefaultPool) }

// requestedFamilies returns the families that a request covers.
func (e *Engine) requestedFamilies(f attachment.Family) []attachment.Family {
	if f != "" {
		return []attachment.Family{f}
	}
	return slices.DeleteFunc([]attachment.Family{attachment.IPv4, attachment.IPv6}, func(f attachment.Family) bool { return !e.opts.Enabled(f) })
}
