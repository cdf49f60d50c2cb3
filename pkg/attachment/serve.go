package attachment

import (
	"context"
	"net/netip"

	"github.com/google/uuid"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// generatedOwner begins the owner of an attachment that was asked for without one.
const generatedOwner = "anonymous/"

// Allocate returns the attachment of an owner, made if need be, with the
// family claimed. Errors are *Error.
func (e *Engine) Allocate(ctx context.Context, r AllocateRequest) (Attachment, error) {
	if r.Family != "" && !e.enabled(r.Family) {
		return Attachment{}, fail(FamilyDisabled, "owner %q in pool %q: family %s is switched off (--enable-%s)", r.Owner, r.Pool, r.Family, r.Family)
	}
	k, err := e.admit(r.Owner, r.Pool)
	if err != nil {
		return Attachment{}, err
	}
	return e.request(ctx, k, func(o *op) (Attachment, error) { return o.allocate(r.Family, r.Expire) }, abandonedIf(r.Owner == ""))
}

// Restore makes exactly one address the owner's, or fails cleanly. Errors are *Error.
func (e *Engine) Restore(ctx context.Context, r RestoreRequest) error {
	if f := record.FamilyOf(r.IP); !e.enabled(f) {
		return fail(FamilyDisabled, "address %s: family %s is switched off (--enable-%s)", r.IP, f, f)
	}
	k, err := e.admit(r.Owner, r.Pool)
	if err != nil {
		return err
	}
	_, err = e.request(ctx, k, func(o *op) (Attachment, error) { return o.restore(r.IP) }, abandonedIf(r.Owner == ""))
	return err
}

// Release takes one address back; the attachment goes with its last one. Errors
// are *Error.
func (e *Engine) Release(ctx context.Context, r ReleaseRequest) error {
	if f := record.FamilyOf(r.IP); !e.enabled(f) {
		return fail(FamilyDisabled, "address %s: family %s is switched off (--enable-%s)", r.IP, f, f)
	}
	pool := poolOr(r.Pool)
	if err := e.knownPool(pool, true); err != nil {
		return err
	}
	k, _, ok := e.holder(pool, r.IP)
	if !ok {
		return notHeld(pool, r.IP)
	}
	_, err := e.request(ctx, k, func(o *op) (Attachment, error) { return Attachment{}, o.release(r.IP) }, nil)
	return err
}

// admit turns owner and pool into a key, or refuses them.
func (e *Engine) admit(owner, pool string) (key, error) {
	if owner == "" {
		owner = generatedOwner + uuid.NewString()
	}
	if !e.Owners.Admits(owner) {
		return key{}, fail(Forbidden, "owner %q is not admitted by --owners", owner)
	}
	pool = poolOr(pool)
	return key{pool, owner}, e.knownPool(pool, false)
}

// abandonedIf gives an attachment back whose client left before it was told the
// generated owner: nobody could ever ask for it again.
func abandonedIf(generated bool) func(*op) error {
	if !generated {
		return nil
	}
	return (*op).giveBack
}

func poolOr(pool string) string {
	if pool == "" {
		return DefaultPool
	}
	return pool
}

func notHeld(pool string, ip netip.Addr) error {
	return fail(NotFound, "address %s is not handed out in pool %q", ip, pool)
}
