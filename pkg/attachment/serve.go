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
	j := job{
		action: ActionAllocate, families: e.wanted(r.Family),
		work:    func(o *op) error { return o.allocate(r.Family, r.Expire) },
		granted: func(o *op) bool { return o.granted(goal{families: o.wanted(r.Family), any: r.Family == ""}) },
		abandon: abandonedIf(r.Owner == ""),
	}
	if r.Family != "" && !e.enabled(r.Family) {
		return e.turnAway(j, r.Pool, familyOff(fmt.Sprintf("owner %q", r.Owner), r.Family))
	}
	return e.requestOf(ctx, r.Owner, r.Pool, j)
}

// Restore makes exactly one address the owner's, or fails cleanly. It returns
// and fails as Allocate does.
func (e *Engine) Restore(ctx context.Context, r RestoreRequest) (Attachment, error) {
	f := record.FamilyOf(r.IP)
	j := job{
		action: ActionRestore, families: []record.Family{f},
		work:    func(o *op) error { return o.restore(r.IP) },
		granted: func(o *op) bool { return o.granted(goal{must: []netip.Addr{r.IP}, families: []record.Family{f}}) },
		abandon: abandonedIf(r.Owner == ""),
	}
	if !e.enabled(f) {
		return e.turnAway(j, r.Pool, familyOff("address "+r.IP.String(), f))
	}
	return e.requestOf(ctx, r.Owner, r.Pool, j)
}

// Release takes one address back; the attachment goes with its last one. It
// returns the attachment as it is afterwards, and fails as Allocate does.
func (e *Engine) Release(ctx context.Context, r ReleaseRequest) (Attachment, error) {
	pool, f := poolOr(r.Pool), record.FamilyOf(r.IP)
	j := job{
		action: ActionRelease, families: []record.Family{f},
		work: func(o *op) error { return o.release(r.IP, r.SkipDelay) },
	}
	k, _, ok := e.holder(pool, r.IP)
	if ok { // also of a family that has been switched off since
		return e.request(ctx, k, j)
	}
	if !e.enabled(f) {
		return e.turnAway(j, pool, familyOff("address "+r.IP.String(), f))
	}
	if err := e.knownPool(pool, true); err != nil {
		return e.turnAway(j, pool, err)
	}
	return e.turnAway(j, pool, notHeld(pool, r.IP))
}

// requestOf is a request of an owner, if it is admitted.
func (e *Engine) requestOf(ctx context.Context, owner, pool string, j job) (Attachment, error) {
	k, err := e.admit(owner, pool)
	if err != nil {
		return e.turnAway(j, pool, err)
	}
	return e.request(ctx, k, j)
}

// turnAway refuses a request that has no business with any attachment.
func (e *Engine) turnAway(j job, pool string, err error) (Attachment, error) {
	e.happened(j.action, poolOr(pool), j.families, err)
	return Attachment{}, err
}

// RejectOwner keeps an owner from being served, such as one whose record only a newer
// version of the program can read. It is called before Start.
func (e *Engine) RejectOwner(pool, owner string, why error) { e.refused[key{pool, owner}] = why }

// admit turns owner and pool into a key, or refuses them.
func (e *Engine) admit(owner, pool string) (key, error) {
	if owner == "" {
		owner = generatedOwner + uuid.NewString()
	}
	if !e.Owners.Match(owner) {
		return key{}, fail(Forbidden, "owner %q is not admitted by --owners", owner)
	}
	k := key{poolOr(pool), owner}
	if why := e.refused[k]; why != nil {
		return key{}, fail(Failed, "%s is not served: %w", k, why)
	}
	return k, e.knownPool(k.pool, false)
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
