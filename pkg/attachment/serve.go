package attachment

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/google/uuid"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// generatedOwner begins the owner of an attachment that was asked for without one.
const generatedOwner = "anonymous/"

// Allocate returns the attachment of an owner, made if need be, with the
// family claimed. Errors are *Error; what is returned then names the attachment
// as far as it is known, for the log.
func (e *Engine) Allocate(ctx context.Context, r AllocateRequest) (Attachment, error) {
	if r.Family != "" && !e.enabled(r.Family) {
		return Attachment{}, familyOff(fmt.Sprintf("owner %q", r.Owner), r.Family)
	}
	k, err := e.admit(r.Owner, r.Pool)
	if err != nil {
		return Attachment{}, err
	}
	return e.request(ctx, k, func(o *op) error { return o.allocate(r.Family, r.Expire) }, abandonedIf(r.Owner == ""))
}

// Restore makes exactly one address the owner's, or fails cleanly. It returns
// and fails as Allocate does.
func (e *Engine) Restore(ctx context.Context, r RestoreRequest) (Attachment, error) {
	if f := record.FamilyOf(r.IP); !e.enabled(f) {
		return Attachment{}, familyOff("address "+r.IP.String(), f)
	}
	k, err := e.admit(r.Owner, r.Pool)
	if err != nil {
		return Attachment{}, err
	}
	return e.request(ctx, k, func(o *op) error { return o.restore(r.IP) }, abandonedIf(r.Owner == ""))
}

// Release takes one address back; the attachment goes with its last one. It
// returns the attachment as it is afterwards, and fails as Allocate does.
func (e *Engine) Release(ctx context.Context, r ReleaseRequest) (Attachment, error) {
	pool := poolOr(r.Pool)
	k, _, ok := e.holder(pool, r.IP)
	if ok { // also of a family that has been switched off since
		return e.request(ctx, k, func(o *op) error { return o.release(r.IP, r.SkipDelay) }, nil)
	}
	if f := record.FamilyOf(r.IP); !e.enabled(f) {
		return Attachment{}, familyOff("address "+r.IP.String(), f)
	}
	if err := e.knownPool(pool, true); err != nil {
		return Attachment{}, err
	}
	return Attachment{}, notHeld(pool, r.IP)
}

// Refuse keeps an owner from being served, such as one whose record only a newer
// version of the program can read. It is called before Start.
func (e *Engine) Refuse(pool, owner string, why error) { e.refused[key{pool, owner}] = why }

// admit turns owner and pool into a key, or refuses them.
func (e *Engine) admit(owner, pool string) (key, error) {
	if owner == "" {
		owner = generatedOwner + uuid.NewString()
	}
	if !e.Owners.Admits(owner) {
		return key{}, fail(Forbidden, "owner %q is not admitted by --owners", owner)
	}
	k := key{poolOr(pool), owner}
	if why := e.refused[k]; why != nil {
		return key{}, fail(Failed, "%s is not served: %w", k, why)
	}
	return k, e.knownPool(k.pool, false)
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

func familyOff(what string, f record.Family) error {
	return fail(FamilyDisabled, "%s: family %s is switched off (--enable-%s)", what, f, f)
}

func notHeld(pool string, ip netip.Addr) error {
	return fail(NotFound, "address %s is not handed out in pool %q", ip, pool)
}
