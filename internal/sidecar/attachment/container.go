package attachment

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// A container runtime calls the plugin through the sidecar for the interfaces of its containers, and
// chooses their container IDs (docs/design/pods.md). So no other ID is used for them: where another
// attachment gets the next generation, an ADD of a container interface fails. The background only adds
// again what an ADD of the runtime has returned.

// ContainerOwner returns the owner of a container interface.
func ContainerOwner(containerID, ifName string) string {
	return ContainerOwnerPrefix + containerID + "/" + ifName
}

// RuntimeID returns the container ID that the runtime chose; empty for another owner.
func (k Key) RuntimeID() string { return RuntimeID(k.Owner) }

// inUse reports whether an address of the record may be in use. What a new container interface reserves for
// itself is not (takeOver).
func (op *Operation) inUse() bool {
	return len(op.Rec.Claims) > 0 || op.Rec.InUse() && !OfContainer(op.Owner)
}

// Add returns the held addresses of a container interface, or acquires some: those that the runtime
// requests, if any, or else those that it had.
func (op *Operation) Add(requested []netip.Addr) error {
	w := Want{Families: []Family{IPv4, IPv6}, Any: true, OfRuntime: requested}
	if op.Rec != nil && isHeld(op.Rec.State) && op.ReleaseAs == "" {
		held, err := op.verify()
		if err != nil {
			return err
		}
		if held {
			if err := op.renew(); err != nil {
				return err
			}
			return op.grant(w)
		}
		if inv := op.LastInvocation(); !op.looked && inv.Profile.SingleUseIDs() { // its DEL would act on the ADD
			return newError(Failed, "%s: plugin %s does not hold it, and its container ID cannot be used again", op, inv.Plugin)
		}
	}
	if err := op.checkRequired(Want{Required: requested}); err != nil {
		return err
	}
	switch {
	case op.Rec == nil || op.Rec.State == Tombstone:
	case op.ReleaseAs == "" && op.inUse() && len(requested) == 0:
		w.Claimed = op.inRange(op.addresses())
		w.Preferred = w.Claimed
	case op.ReleaseAs == "" && op.inUse():
	default:
		if err := op.release(); err != nil {
			return err
		}
	}
	return op.acquire(w)
}

// renew records what the runtime passes in the ADD of a held container interface, because DEL and CHECK need
// it: after a restore it may have another network namespace. The invocation of the ADD that the plugin has run
// is kept for the DEL if it has other arguments, by which the plugin may know the addresses.
func (op *Operation) renew() error {
	last := op.LastInvocation()
	inv, err := op.World.WithContainer(last)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if inv.Equal(last) {
		return nil
	}
	r := op.Rec.Clone()
	if inv.NetNS != last.NetNS {
		r.Created = op.World.Now() // who has seen the earlier sandbox end has not seen this one
	}
	last.NetNS = inv.NetNS
	if !inv.Equal(last) && !last.AddRefused {
		r.Invocations[len(r.Invocations)-1] = last
		inv.AddRefused = true // there was none
		r.Invocations = append(r.Invocations, inv)
	} else {
		r.Invocations[len(r.Invocations)-1] = inv
	}
	if err := op.write(r); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// idInUseError rejects an ADD while an earlier DEL may act on its container ID.
func (op *Operation) idInUseError() error {
	wait := op.Rec.LateDel.Until.Sub(op.World.Now())
	return &Error{Kind: Busy, RetryAfter: wait, Err: fmt.Errorf("a DEL with an unknown outcome may still act on container ID %s for %s; try again later", op.RuntimeID(), wait)}
}

// mayAddAgain reports whether the background may add a lost container interface again. One that has ended is
// released: after a rollback the plugin itself gets the DEL of the runtime.
func (op *Operation) mayAddAgain() (bool, error) {
	if op.Rec.State == Held && !op.looked && !op.Freed { // CHECK says so, or one address is lost: a DEL could cost a live container its address
		op.World.SetDoubted(false)
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
	case op.addedAgain(stored), rolledBack && len(stored) > 0:
		op.Action = Cleanup
		return false, op.removeRecord()
	case err != nil:
		return false, err
	case rolledBack:
		op.Action = Cleanup
		return false, op.release()
	case network.Name != op.Rec.Network: // its runtime does not know that one
		op.setLost(fmt.Errorf("network %q is not configured", op.Rec.Network))
		return false, nil
	}
	return true, nil
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
// plugin itself has added the ID again. A DEL would free what that container uses.
func (op *Operation) addedAgain(stored []netip.Addr) bool {
	return len(stored) > 0 && !slices.ContainsFunc(stored, op.Rec.Holds)
}

// Del releases a container interface, with the release delay if it is held. Without a record
// the plugin may have what was allocated without the sidecar, or before its journal was lost. A runtime may
// not repeat its DEL, so after an error the background continues.
func (op *Operation) Del() error { return op.releaseLaterAfter(op.delOnce()) }

func (op *Operation) delOnce() error {
	switch {
	case op.Rec == nil || op.Rec.State == Tombstone:
	case op.Rec.State == Cooldown:
		return op.writeIfDirty()
	case op.Lost: // the plugin has nothing to keep
		return op.release()
	default:
		return op.unclaim()
	}
	inv, _, err := op.newInvocation()
	if err != nil {
		return err
	}
	r := op.newOrClonedRecord(inv)
	r.State, r.Network, r.Changed, r.Invocations = Releasing, inv.Network, op.World.Now(), []call.Invocation{inv}
	op.Dirty = true // release writes it
	op.setRecord(r)
	return op.release()
}

// Check runs the plugin's CHECK, if that tells whether the plugin holds the addresses.
func (op *Operation) Check() error {
	inv := op.LastInvocation()
	switch {
	case op.Rec == nil || op.Rec.State == Tombstone: // it may have been added without the sidecar
		var err error
		if inv, _, err = op.newInvocation(); err != nil {
			return err
		}
	case op.Rec.State != Held:
		return newError(Failed, "%s: the attachment is in state %s", op, op.Rec.State)
	}
	if inv.VerifyBy() != profile.VerifyCheck {
		return nil
	}
	if err := op.World.Process(); err != nil {
		return err
	}
	_, err := op.World.Call(call.VerbCheck, inv)
	return err
}
