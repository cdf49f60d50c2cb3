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

// verify reports whether the plugin still holds the recorded addresses, by the method of the
// profile. An error means that this is unknown: a failed check is not evidence of loss, so
// the attachment is not given up then.
func (op *Operation) verify() (held bool, err error) {
	if op.recentlyVerified() {
		return true, nil
	}
	if op.World.Doubted() {
		op.World.SetDoubted(false) // a duplicate that is found from now on requires another one
		defer func() {
			// A lost attachment is retried. One that must be acquired anew may wait for a process in vain.
			if err != nil || !held && !op.Lost {
				op.World.SetDoubted(true)
			}
		}()
	}
	inv := op.LastInvocation()
	if op.idInUseByDel(inv) && op.World.Now().Before(op.Rec.LateDel.Until) {
		return false, fmt.Errorf("%s: a DEL of %v without an answer may still act; try again after %s", op, op.addresses(), op.Rec.LateDel.Until.Format(time.RFC3339))
	}
	held, known := op.verifyByLookup(inv)
	if !known {
		if op.World.Older() {
			op.setLost(errors.New("an older attachment has the same address"))
			return false, nil
		}
		acquireAnew := op.mayHaveLostWrites(inv) && canRequest(inv, op.claimedAddresses())
		_, networkErr := op.World.Network()
		if acquireAnew && networkErr == nil {
			return false, nil
		}
		if err := op.World.Process(); err != nil {
			return false, err
		}
		if held, err = op.verifyByPlugin(inv); held && acquireAnew {
			err = networkErr // the plugin can only prove a loss
		}
		if err != nil {
			return false, fmt.Errorf("%s: the plugin could not verify %v: %w", op, op.addresses(), err)
		}
	}
	if !held {
		op.looked = known && (!OfContainer(op.Owner) || op.holdsNone(inv))
		if op.unconfirmed == nil { // otherwise the DEL must confirm that
			op.setLost(fmt.Errorf("plugin %s does not hold it", inv.Plugin))
		}
		return false, nil
	}
	op.setVerified()
	if op.Rec.BootID != op.Opts.BootID || op.Dirty {
		r := op.Rec.Clone()
		r.BootID = op.Opts.BootID
		return true, op.write(r)
	}
	return true, nil
}

// verifyByLookup reads from the plugin's store whether it holds the recorded addresses. known
// is false if lookups do not work; the plugin is queried then.
func (op *Operation) verifyByLookup(inv call.Invocation) (holds, known bool) {
	if !inv.StoreProven {
		return false, false
	}
	holds, err := op.World.Holds(inv, op.addresses())
	if err != nil {
		op.World.Note(Note{NoteNoLookup, err})
	}
	return holds, err == nil
}

// holdsNone reports whether the plugin's store certainly has none of the recorded addresses. A DEL frees
// all addresses of a container, so one that is lost does not justify it.
func (op *Operation) holdsNone(inv call.Invocation) bool {
	return !slices.ContainsFunc(op.addresses(), func(ip netip.Addr) bool {
		held, err := op.World.Holds(inv, []netip.Addr{ip})
		return held || err != nil
	})
}

// verifyByPlugin verifies the attachment by CHECK or ADD, as the profile says.
func (op *Operation) verifyByPlugin(inv call.Invocation) (bool, error) {
	by := inv.VerifyBy()
	if by == profile.VerifyAdd && OfContainer(op.Owner) {
		by = profile.VerifyNothing // an ADD is the runtime's
	}
	switch by {
	case profile.VerifyNothing:
		return true, nil
	case profile.VerifyAdd:
		res, err := op.World.Call(call.VerbAdd, inv)
		if outcomeUnknown(err) {
			// It may still allocate, so a DEL must follow.
			inv.AddActsUntil = inv.Profile.ActsUntil(op.World.Now())
			op.setInvocations(withLast(op.Rec.Invocations, inv))
			return false, errors.Join(err, op.write(op.Rec.Clone()))
		}
		if err != nil {
			return false, err
		}
		if sameAddresses(res.Addresses, op.Rec.Result.Addresses) {
			return true, nil
		}
		// This ADD allocated other addresses. They are released like the result of any ADD that
		// returns something else: with its DEL, deadline and generation.
		r := op.Rec.Clone()
		r.State = Adding
		return false, op.write(r)
	default:
		_, err := op.World.Call(call.VerbCheck, inv)
		if call.IsLost(inv, err) {
			if !inv.Profile.SingleUseIDs() { // otherwise a DEL confirms nothing
				op.unconfirmed = op.Rec
			}
			return false, nil
		}
		return err == nil, err
	}
}

// mayHaveLostWrites reports whether the plugin may have lost its last writes in a reboot, so
// that a check that compares no address could confirm a different one.
func (op *Operation) mayHaveLostWrites(inv call.Invocation) bool {
	return op.Rec.BootID != op.Opts.BootID && inv.Profile.OnNode() && inv.Profile.CheckProves != profile.ProvesAddress
}
