package attachment

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Release drops the claim of an address, and releases the attachment with the last
// claim: one DEL frees all families.
func (op *Operation) Release(ip netip.Addr, skipDelay bool) error {
	// The address may have a new owner since the wait for the lock.
	if op.Rec == nil || !slices.Contains(op.Rec.Reserved(), ip) {
		return NotFoundError(op.Pool, ip)
	}
	if op.Rec.State == Releasing || op.Rec.State == Cooldown && skipDelay {
		return op.release()
	}
	if OfContainer(op.Owner) && skipDelay {
		return op.release()
	}
	if OfContainer(op.Owner) { // it ends with all families
		return op.unclaim()
	}
	f := FamilyOf(ip)
	r := op.Rec.Clone()
	if r.GivenUp = slices.DeleteFunc(r.GivenUp, func(g netip.Addr) bool { return g == ip }); len(r.GivenUp) == len(op.Rec.GivenUp) {
		if !r.Claimed(f) {
			return NotFoundError(op.Pool, ip)
		}
		r.Claims = slices.DeleteFunc(r.Claims, func(c Family) bool { return c == f })
	}
	if r.InUse() {
		return op.write(r)
	}
	if skipDelay {
		return op.release()
	}
	return op.unclaim()
}

// unclaim drops every claim: the attachment enters cooldown, or is released.
func (op *Operation) unclaim() error {
	if op.Opts.ReleaseDelay <= 0 || op.Rec.State != Held {
		return op.release()
	}
	r := op.Rec.Clone()
	r.State, r.Claims, r.GivenUp, r.Expiration = Cooldown, nil, nil, nil
	r.ReleaseAt = op.World.Now().Add(op.Opts.ReleaseDelay)
	return op.write(r)
}

// release writes releasing, runs a DEL with every invocation and removes the record. If it must wait for a
// plugin process, releasing is written first: the client may leave, and the background continues.
func (op *Operation) release() error {
	if err := op.processToRelease(); err != nil {
		return err
	}
	if op.Action == Cleanup { // no DEL of its runtime
		if stored, _ := op.stored(); op.addedAgain(stored) { //nolint:errcheck // then it is not known
			return op.removeRecord()
		}
	}
	if err := op.writeReleasing(op.withConfigured()); err != nil {
		return fmt.Errorf("%s: %w; the plugin was not called", op, err)
	}
	addsEnded := op.addsEnded()
	if err := op.delAll(op.Rec.Invocations); err != nil {
		return fmt.Errorf("%s could not be released; the DEL is retried in the background: %w", op, err)
	}
	if !addsEnded {
		return nil // a last DEL follows when no ADD can act any more
	}
	return op.removeRecord()
}

// processToRelease gets a plugin process. Before a wait it writes releasing.
func (op *Operation) processToRelease() error {
	if free, err := op.World.TryProcess(); free || err != nil {
		return err
	}
	if err := op.writeReleasing(op.Rec.Invocations); err != nil {
		return fmt.Errorf("%s: %w; the plugin was not called", op, err)
	}
	return op.World.Process()
}

// writeReleasing makes the state releasing durable, in this boot, because a DEL with one of the
// invocations may act from then on. Without the write the record keeps its own: the last one names the
// container ID that holds the addresses.
func (op *Operation) writeReleasing(invocations []call.Invocation) error {
	if op.Rec.State == Releasing && !op.Dirty && op.Rec.BootID == op.Opts.BootID && len(invocations) == len(op.Rec.Invocations) {
		return nil
	}
	r := op.Rec.Clone()
	r.State, r.Claims, r.GivenUp, r.Expiration, r.ReleaseAt = Releasing, nil, nil, nil, time.Time{}
	r.Invocations = invocations
	r.BootID = op.Opts.BootID
	return op.write(r)
}

// Return releases an attachment whose client did not get it.
func (op *Operation) Return() error { return op.releaseLaterAfter(op.release()) }

// releaseLaterAfter makes later reconciliations release an attachment after the error of a release,
// unless its record is releasing. It returns err.
func (op *Operation) releaseLaterAfter(err error) error {
	if err != nil && op.Rec != nil && op.Rec.State != Releasing {
		op.ReleaseAs = Cleanup
		op.publish()
	}
	return err
}
