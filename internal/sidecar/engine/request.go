package engine

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"github.com/google/uuid"

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
