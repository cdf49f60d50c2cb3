package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// wholeRetries is how often all claimed addresses of a lost attachment are requested, before each is
// requested without the others: about 15 s.
const wholeRetries = 4

// Settle makes plugin, journal and memory agree with what is wanted. It is recovery after a start, retry after a
// failure, and work that a deadline triggers: one function, because a crash makes them the same. freed: the plugin has
// just freed an address of the attachment: it is lost, or, if the plugin cannot be asked about it, it was until then.
func (op *Operation) Settle(freed bool) error {
	r, now := op.Rec, op.World.Now()
	freed = freed && (op.Lost || op.VerifyDue && !r.provable()) // it may have been reacquired meanwhile
	switch {
	case r == nil, r.State == Tombstone && now.Before(r.LateDel.Until):
		return nil
	case r.State == Tombstone:
		return op.removeRecord()
	case op.ReleaseAs != "":
		op.Action = op.ReleaseAs
		return op.free()
	case op.Expired(now):
		op.Action = Expire
		err := op.unclaim(false)
		if op.Rec == nil || !op.Expired(now) { // otherwise it is retried, and reported then
			op.World.Report(Event{Kind: EventExpired})
		}
		return err
	case r.State == Cooldown && now.Before(r.ReleaseAt):
		return op.settleKept(freed)
	case r.State == Cooldown && r.Lent != nil:
		op.Action = Cleanup
		return op.returnLease()
	case r.State == Cooldown, r.State == Releasing, r.State == Adding && !op.inUse():
		op.Action = Cleanup
		return op.free()
	case r.State == Adding:
		return op.reacquire(doubtful, freed)
	case IsWarm(op.Owner):
		return op.settleWarm(freed)
	}
	return op.reverify(freed)
}

// inUse reports whether an address of the record may be in use. What a new container interface reserves for
// itself is not (takeOver).
func (op *Operation) inUse() bool {
	return len(op.Rec.Claims) > 0 || op.Rec.InUse() && !OfContainer(op.Owner)
}

// reverify verifies a held attachment once per start, after a duplicate, or after a failed
// check, and reacquires it if it is lost.
func (op *Operation) reverify(freed bool) error {
	if !op.VerifyDue && op.Failures == 0 && !freed {
		return op.delOldIDs()
	}
	found, err := op.verifyUnlessFreed(freed)
	if err == nil && found != stillHeld {
		err = op.reacquire(found, freed)
	}
	if err != nil || op.Rec == nil { // a container interface that has ended is released
		return err
	}
	return op.delOldIDs()
}

// verifyUnlessFreed is verify for an attachment of which the plugin has not just freed an address; then it is lost.
func (op *Operation) verifyUnlessFreed(freed bool) (verdict, error) {
	if !freed {
		return op.verify()
	}
	op.setLost(errors.New("the plugin has allocated its addresses again"))
	return gone, nil
}

// reacquire completes an interrupted acquisition, and reacquires lost addresses that were
// allocated to the owner, if they can be requested and are in the ranges. found is how a held one was found to be lost.
func (op *Operation) reacquire(found verdict, freed bool) error {
	if OfContainer(op.Owner) {
		if again, err := op.mayAddAgain(found); !again {
			return err
		}
	}
	op.Action = Reacquire
	inv, all := op.LastInvocation(), op.claimedAddresses()
	claimed := op.inRange(all)
	whole := len(claimed) == len(all) // a container has all that its ADD has returned, or nothing
	if (whole || len(claimed) > 0 && !OfContainer(op.Owner)) && (freed || canRequest(inv, claimed)) {
		required := claimed
		// One that another holder has for good must not cost the owner the other family.
		if n := op.Failures; n >= wholeRetries && len(claimed) > 1 {
			required = claimed[n%len(claimed):][:1]
		}
		return op.hold(Want{Preferred: op.inRange(op.addresses()), Required: required, yields: freed, confirm: found == reported})
	}
	op.setLost(fmt.Errorf("these addresses cannot be requested from plugin %s; the next request of the owner gets others", inv.Plugin))
	if op.Rec.State != Adding {
		return nil
	}
	if err := op.World.Process(); err != nil {
		return err
	}
	if err := op.writeIfDirty(); err != nil {
		return err
	}
	done, err := op.delEach(op.Rec.Invocations)
	op.WaitsForOwner = len(without(op.Rec.Invocations, done)) == 0
	op.publish()
	return err
}

// mayAddAgain reports whether the background may add a lost container interface again: only what an ADD of its runtime
// has returned. One that has ended is released: after a rollback the plugin itself gets the DEL of the runtime.
func (op *Operation) mayAddAgain(found verdict) (bool, error) {
	if op.Rec.State == Held && found != gone { // CHECK says so, or one address is lost: a DEL could cost a live container its address
		op.setLost(fmt.Errorf("plugin %s does not hold it", op.LastInvocation().Plugin))
		return false, nil
	}
	stored, err := op.stored()
	if err != nil {
		return false, err
	}
	network, err := op.World.Network()
	rolledBack := err == nil && !network.ServesContainers
	switch {
	case rolledBack && op.Rec.Lent != nil: // the DEL of its runtime does not reach it
		op.setLost(fmt.Errorf("network %q does not serve containers", op.Rec.Network))
		return false, nil
	case op.addedAgain(stored), rolledBack && len(stored) > 0:
		op.Action = Cleanup
		return false, op.leave()
	case err != nil:
		return false, err
	case rolledBack:
		op.Action = Cleanup
		return false, op.free()
	case network.Name != op.Rec.Network: // its runtime does not know that one
		err = fmt.Errorf("network %q is not configured", op.Rec.Network)
		op.setLost(err)
	}
	return err == nil, err
}

// stored returns the addresses that the plugin's store has for a container interface; none if that is not known.
func (op *Operation) stored() ([]netip.Addr, error) {
	inv := op.LastInvocation()
	if !OfContainer(op.Owner) || !inv.StoreProven {
		return nil, nil
	}
	found, err := op.World.Lookup(inv)
	if len(found.Addresses) == 0 {
		return nil, err
	}
	return call.Addrs(found.Addresses), nil
}

// addedAgain reports whether all of the stored addresses are others than the recorded ones: after a rollback the
// plugin itself has added the ID of the runtime again. A DEL would free what that container uses.
func (op *Operation) addedAgain(stored []netip.Addr) bool {
	return len(stored) > 0 && op.Rec.Lent == nil && !slices.ContainsFunc(stored, op.Rec.Holds)
}
