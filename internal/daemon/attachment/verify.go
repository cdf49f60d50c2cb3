package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// verdict is what a verification has found.
type verdict byte

const (
	// stillHeld: the plugin holds the recorded addresses.
	stillHeld verdict = iota + 1
	// gone: its store lacks one of them; of a container it has none.
	gone
	// doubtful: it does not hold all of them under this ID.
	doubtful
	// unprovable: after a reboot it may hold others, and only an ADD finds out.
	unprovable
	// reported: CHECK reported the loss. A plugin without its server may do so, too, so a DEL must confirm it.
	reported
)

// verify finds out whether the plugin still holds the recorded addresses, by the method of the
// profile. An error means that this is unknown: a failed check is not evidence of loss, so
// the attachment is not given up then.
func (op *Operation) verify() (verdict, error) {
	if op.recentlyVerified() {
		return stillHeld, nil
	}
	inv := op.LastInvocation()
	if op.idInUseByDel(inv) && op.World.Now().Before(op.Rec.LateDel.Until) {
		return 0, fmt.Errorf("%s: a DEL of %v without an answer may still act; try again after %s", op, op.addresses(), op.Rec.LateDel.Until.Format(time.RFC3339))
	}
	found, err := op.verifyByLookup(inv)
	if found == 0 {
		found, err = op.verifyByPlugin(inv)
	}
	switch {
	case err != nil:
		return 0, err
	case found == stillHeld:
		op.setVerified()
		if op.Rec.BootID != op.Opts.BootID || op.Dirty {
			r := op.Rec.Clone()
			r.BootID = op.Opts.BootID
			err = op.write(r)
		}
		return stillHeld, err
	case found == gone, found == doubtful:
		op.setLost(fmt.Errorf("plugin %s does not hold it", inv.Plugin))
	}
	return found, nil
}

// provable reports whether a verification can find a loss: some plugins cannot be asked.
func (r *Record) provable() bool {
	if r == nil {
		return true
	}
	by := r.last().VerifyBy()
	return r.last().StoreProven || by == profile.VerifyCheck || by == profile.VerifyAdd && !OfContainer(r.Owner)
}

// verifyByLookup reads from the plugin's store whether it holds the recorded addresses. Without a verdict
// lookups do not work, and the plugin is called. A DEL frees all addresses of a container, so one that is lost
// does not justify it.
func (op *Operation) verifyByLookup(inv call.Invocation) (verdict, error) {
	if !inv.StoreProven {
		return 0, nil
	}
	holds, err := op.World.Holds(inv, op.addresses())
	some := func(ip netip.Addr) bool {
		held, err := op.World.Holds(inv, []netip.Addr{ip})
		return held || err != nil
	}
	switch {
	case err != nil:
		op.World.Report(Event{EventNoLookup, err})
		return 0, nil
	case holds:
		return stillHeld, nil
	case OfContainer(op.Owner) && slices.ContainsFunc(op.addresses(), some):
		return doubtful, nil
	}
	return gone, nil
}

// verifyByPlugin verifies the attachment by CHECK or ADD, as the profile says. Where two records have an address,
// the younger one is lost. After a reboot a plugin that compares no address can only prove a loss.
func (op *Operation) verifyByPlugin(inv call.Invocation) (verdict, error) {
	other, _ := op.World.Conflict(op.Rec.Network, op.Rec.Reserved())
	if other.Record.OlderThan(op.Rec) && other.Record.State != Releasing {
		return doubtful, nil
	}
	acquireAnew := op.mayHaveLostWrites(inv) && canRequest(inv, op.claimedAddresses())
	_, networkErr := op.World.Network()
	if acquireAnew && networkErr == nil {
		return unprovable, nil
	}
	if err := op.World.Process(); err != nil {
		return 0, err
	}
	found, err := op.call(inv)
	if err == nil && found == stillHeld && acquireAnew {
		err = networkErr
	}
	if err != nil {
		return 0, fmt.Errorf("%s: the plugin could not verify %v: %w", op, op.addresses(), err)
	}
	return found, nil
}

// call runs the verb that verifies an invocation. An ADD of a container interface is its runtime's.
func (op *Operation) call(inv call.Invocation) (verdict, error) {
	by := inv.VerifyBy()
	switch {
	case by == profile.VerifyNothing, by == profile.VerifyAdd && OfContainer(op.Owner):
		return stillHeld, nil
	case by == profile.VerifyAdd:
		return op.verifyByAdd(inv)
	}
	_, err := op.World.Call(call.VerbCheck, inv)
	switch {
	case err == nil:
		return stillHeld, nil
	case !call.IsLost(inv, err):
		return 0, err
	case inv.Profile.SingleUseIDs(): // a DEL confirms nothing
		return doubtful, nil
	}
	return reported, nil
}

func (op *Operation) verifyByAdd(inv call.Invocation) (verdict, error) {
	res, err := op.World.Call(call.VerbAdd, inv)
	switch {
	case outcomeUnknown(err): // it may still allocate, so a DEL must follow
		inv.AddActsUntil = inv.Profile.ActsUntil(op.World.Now())
		op.setInvocations(withLast(op.Rec.Invocations, inv))
		return 0, errors.Join(err, op.write(op.Rec.Clone()))
	case err != nil:
		return 0, err
	case sameAddresses(res.Addresses, op.Rec.Result.Addresses):
		return stillHeld, nil
	}
	// It allocated other addresses. They are released like the result of any ADD that returns something else: with
	// its DEL, deadline and generation.
	r := op.Rec.Clone()
	r.State = Adding
	return doubtful, op.write(r)
}

// mayHaveLostWrites reports whether the plugin may have lost its last writes in a reboot, so
// that a check that compares no address could confirm a different one.
func (op *Operation) mayHaveLostWrites(inv call.Invocation) bool {
	return op.Rec.BootID != op.Opts.BootID && inv.Profile.OnNode() && inv.Profile.CheckProves != profile.ProvesAddress
}

// confirmLoss ends Record.Confirming: with one of the done DELs the attachment is lost; otherwise it is kept as it was,
// because the plugin may be unavailable and its CHECK wrong, and the acquisition ends with the error.
func (t *try) confirmLoss(inv call.Invocation, done []call.Invocation, delErr error) error {
	r := t.Rec.Clone()
	r.Confirming = false
	if slices.ContainsFunc(done, func(d call.Invocation) bool { return d.ContainerID == r.IDInUse() }) {
		t.setRecord(r)
		t.setLost(fmt.Errorf("plugin %s does not hold it", inv.Plugin))
		return nil
	}
	if t.idInUseByDel(t.LastInvocation()) || outcomeUnknown(delErr) { // it may be lost now
		t.setLost(delErr)
	}
	return fmt.Errorf("%s: the plugin reported that it does not hold %v, but the DEL that must confirm that failed, so it is kept: %w",
		t, r.Addrs(), errors.Join(delErr, t.write(r)))
}
