package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Release drops the claim of an address, and releases the attachment with the last
// claim: one DEL frees all families. skipDelay releases it without cooldown.
func (op *Operation) Release(ip netip.Addr, skipDelay bool) error {
	// The address may have a new owner since the wait for the lock.
	if op.Rec == nil || !slices.Contains(op.Rec.Reserved(), ip) {
		return NotFoundError(op.Pool, ip)
	}
	switch {
	case op.Rec.State == Releasing, op.Rec.State == Cooldown && skipDelay, IsWarm(op.Owner):
		return op.free()
	case OfContainer(op.Owner): // it ends with all families
		return op.unclaim(skipDelay)
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
	return op.unclaim(skipDelay)
}

// Del releases a container interface, with the release delay if it is held. Without a record
// the plugin may have what was allocated without the daemon, or before its journal was lost. A runtime may
// not repeat its DEL, so after an error the background continues.
func (op *Operation) Del() error { return op.finishLater(op.delOnce()) }

func (op *Operation) delOnce() error {
	switch {
	case op.Rec == nil || op.Rec.State == Tombstone:
	case op.Rec.State == Cooldown:
		return op.writeIfDirty()
	default: // what is lost has nothing to keep
		return op.unclaim(op.Lost)
	}
	inv, _, err := op.newInvocation(call.VerbDel)
	if err != nil {
		return err
	}
	r := op.newOrClonedRecord(inv)
	r.State, r.Network, r.Changed, r.Invocations = Releasing, inv.Network, op.World.Now(), []call.Invocation{inv}
	op.Dirty = true // free writes it
	op.setRecord(r)
	return op.free()
}

// EndCooldown releases a spare attachment.
func (op *Operation) EndCooldown() error {
	if op.Rec == nil || op.Rec.State != Cooldown && !op.spare() {
		return nil // it was requested again, or is being released
	}
	return op.free()
}

// Return releases an attachment whose client did not get it.
func (op *Operation) Return() error { return op.finishLater(op.free()) }

// finishLater makes the background release an attachment after the error of a release, unless its record is
// releasing. It returns err.
func (op *Operation) finishLater(err error) error {
	if err != nil && op.Rec != nil && op.Rec.State != Releasing {
		op.ReleaseAs = Cleanup
		op.publish()
	}
	return err
}

// unclaim drops every claim: the attachment enters cooldown, or is released.
func (op *Operation) unclaim(skipDelay bool) error {
	switch {
	case op.Rec.Lent != nil && (skipDelay || op.Opts.ReleaseDelay <= 0):
		return op.returnLease()
	case skipDelay || op.Opts.ReleaseDelay <= 0 || op.Rec.State != Held:
		return op.free()
	}
	r := op.Rec.Clone()
	r.State, r.Claims, r.GivenUp, r.Expiration = Cooldown, nil, nil, nil
	r.ReleaseAt = op.World.Now().Add(op.Opts.ReleaseDelay)
	return op.write(r)
}

// free makes the release durable, runs a DEL with every invocation and removes the record. While it waits for a plugin
// process the client may leave, and the background continues.
func (op *Operation) free() error {
	if err := op.writeReleasing(); err != nil {
		return err
	}
	if err := op.World.Process(); err != nil {
		return err
	}
	if op.Action == Cleanup { // no DEL of its runtime
		if stored, _ := op.stored(); op.addedAgain(stored) { //nolint:errcheck // then it is not known
			return op.leave()
		}
	}
	done, err := op.delEach(op.Rec.Invocations)
	switch {
	case err != nil:
		return fmt.Errorf("%s could not be released; the DEL is retried in the background: %w", op, err)
	case len(without(op.Rec.Invocations, done)) > 0:
		return nil // a last DEL follows when no ADD can act any more
	}
	return op.removeRecord()
}

// leave removes the record of a container interface that the plugin itself has added again, without the DEL of its ID,
// which would free what that container uses.
func (op *Operation) leave() error {
	live := op.LastInvocation().ContainerID
	others := slices.DeleteFunc(slices.Clone(op.Rec.Invocations), func(inv call.Invocation) bool { return inv.ContainerID == live })
	if len(others) == 0 {
		return op.removeRecord()
	}
	if err := op.World.Process(); err != nil {
		return err
	}
	if done, err := op.delEach(others); err != nil || len(done) < len(others) {
		return err
	}
	return op.removeRecord()
}

// writeReleasing makes the state releasing durable, in this boot, because a DEL with one of the
// invocations may act from then on. Without the write the record keeps its own: the last one names the
// container ID that holds the addresses.
func (op *Operation) writeReleasing() error {
	invocations := op.withConfigured()
	if op.Rec.State == Releasing && !op.Dirty && op.Rec.BootID == op.Opts.BootID && len(invocations) == len(op.Rec.Invocations) {
		return nil
	}
	r := op.Rec.Clone()
	r.State, r.Claims, r.GivenUp, r.Expiration, r.ReleaseAt = Releasing, nil, nil, nil, time.Time{}
	r.Invocations, r.BootID = invocations, op.Opts.BootID
	if err := op.write(r); err != nil {
		return fmt.Errorf("%s: %w; the plugin was not called", op, err)
	}
	return nil
}

// del runs one DEL. After an unknown outcome it may act late, and the next ADD uses another container ID.
func (op *Operation) del(inv call.Invocation) error {
	if skip, err := op.keepOther(inv); skip || err != nil {
		return err
	}
	_, err := op.World.Call(call.VerbDel, inv)
	if call.IsNotHeld(inv, err) {
		return nil
	}
	if outcomeUnknown(err) {
		// Memory suffices until the next write: a start infers it from the state.
		r := op.Rec.Clone()
		markLateDel(&r, inv, op.World.Now())
		op.setRecord(r)
	}
	return err
}

// markLateDel records that a DEL whose process ended at the given time may still act, so that
// its container ID is not used again before then.
func markLateDel(r *Record, inv call.Invocation, ended time.Time) {
	until := inv.Profile.ActsUntil(ended)
	if inv.Profile.SingleUseIDs() || inv.KeepsLost || !until.After(ended) {
		return // the ID is never used again, or the DEL ended with its process
	}
	if inv.ContainerID == containerid.Generation(r.ContainerID, r.Generation) {
		r.Generation++
	}
	if until.After(r.LateDel.Until) {
		r.LateDel = LateDel{Until: until, Seconds: int(until.Sub(ended) / time.Second)}
	}
}

// delEach runs DEL with each invocation, newest first, because that one holds the addresses. It returns those that need
// no further DEL, and the joined errors of the others. The record keeps them until its next write: a repeated DEL is
// harmless. If the plugin refused the ADDs and the DEL of an invocation, the DEL of another one of the same attachment
// suffices. A plugin of which nothing is known may refuse a DEL because it holds nothing: if it refused the ADDs, too,
// that is assumed when the time has passed in which an ADD could have acted; otherwise the ADD is repeated.
func (op *Operation) delEach(invocations []call.Invocation) (done []call.Invocation, err error) {
	errs, began := make([]error, len(invocations)), make([]time.Time, len(invocations))
	var deleted []call.Invocation
	for i, inv := range slices.Backward(invocations) {
		began[i] = op.World.Now() // an ADD that may act during the DEL may act after it
		if errs[i] = op.del(inv); isPluginRefusal(errs[i]) && op.mayHoldNothing(inv, began[i]) {
			errs[i] = op.addToDelete(inv, errs[i])
		}
		if errs[i] == nil {
			deleted = append(deleted, inv)
		}
	}
	for i, inv := range invocations {
		refused := inv.AddRefused && isRefused(errs[i])
		switch {
		case refused && slices.ContainsFunc(deleted, inv.SameAttachment):
			errs[i], inv.AddActsUntil = nil, time.Time{}
		case refused && inv.Profile.NothingKnown() && isPluginRefusal(errs[i]):
			errs[i] = op.assumeNotHeld(&inv, errs[i])
		}
		if errs[i] == nil && !began[i].Before(inv.AddActsUntil) {
			done = append(done, inv)
		}
	}
	return done, errors.Join(errs...)
}

// assumeNotHeld notes, at the first refusal of a DEL, until when an ADD with the invocation could have acted, and returns
// the refusal. From then on it is expected, and reported when that time has passed.
func (op *Operation) assumeNotHeld(inv *call.Invocation, refusal error) error {
	now := op.World.Now()
	switch {
	case inv.AddActsUntil.IsZero():
		all := slices.Clone(op.Rec.Invocations)
		for i := range all {
			if all[i].Equal(*inv) {
				all[i].AddActsUntil = inv.Profile.ActsUntil(now)
			}
		}
		op.setInvocations(all)
		return refusal
	case !now.Before(inv.AddActsUntil):
		op.World.Report(Event{EventNotHeld, refusal})
	}
	return nil
}

// mayHoldNothing reports whether the plugin may have refused each DEL of an invocation, of which the last one has begun at a
// moment, because it holds nothing: nothing is known about it, and no verb may act any more.
func (op *Operation) mayHoldNothing(inv call.Invocation, began time.Time) bool {
	r := op.Rec
	return op.Action == Cleanup && r.State == Releasing && op.Failures >= wholeRetries && !op.DelInVain &&
		inv.Profile.NothingKnown() && !inv.AddRefused && !began.Before(inv.AddActsUntil) && !began.Before(r.LateDel.Until)
}

// addToDelete repeats the ADD of an invocation whose DEL was refused, and then the DEL: now the plugin holds something
// (doc.go).
func (op *Operation) addToDelete(inv call.Invocation, refusal error) error {
	r, releasing := op.Rec.Clone(), op.Rec.Clone()
	r.State = Adding
	if err := op.write(r); err != nil {
		return errors.Join(refusal, err)
	}
	op.World.Report(Event{EventAddToDelete, refusal})
	res, err := op.World.Call(call.VerbAdd, inv)
	if outcomeUnknown(err) {
		inv.AddActsUntil = inv.Profile.ActsUntil(op.World.Now())
	}
	inv.PrevResult = res.Raw
	releasing.Invocations[slices.IndexFunc(r.Invocations, inv.Equal)] = inv // the last one names the container
	op.Dirty = true
	op.setRecord(releasing)
	if err != nil {
		return errors.Join(refusal, err)
	}
	err = op.del(inv)
	op.DelInVain = isRefused(err)
	return err
}

// without returns the invocations that are not among others.
func without(all, others []call.Invocation) []call.Invocation {
	return slices.DeleteFunc(slices.Clone(all), func(inv call.Invocation) bool { return slices.ContainsFunc(others, inv.Equal) })
}

// delOldIDs runs the DEL of oldIDs whose ADD cannot act any more.
func (op *Operation) delOldIDs() error {
	now := op.World.Now()
	due := slices.DeleteFunc(op.OldIDs(), func(inv call.Invocation) bool { return now.Before(inv.AddActsUntil) })
	if op.Rec.State != Held || len(due) == 0 {
		return nil
	}
	if err := op.World.Process(); err != nil {
		return err
	}
	done, err := op.delEach(due)
	if len(done) > 0 {
		r := op.Rec.Clone()
		r.Invocations = without(r.Invocations, done)
		err = errors.Join(err, op.write(r))
	}
	return err
}
