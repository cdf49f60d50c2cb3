package protocol

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// A container runtime calls the plugin through the sidecar for the interfaces of its containers, and
// chooses their container IDs (docs/design/pods.md). So no other ID is used for them: where another
// attachment gets the next generation, a container interface is released first, or its ADD fails. It is
// acquired by an ADD of the runtime only, never in the background.

// ContainerOwner returns the owner of a container interface.
func ContainerOwner(containerID, ifName string) string {
	return record.ContainerOwnerPrefix + containerID + "/" + ifName
}

// OfContainer reports whether an owner is a container interface.
func OfContainer(owner string) bool { return record.OfContainer(owner) }

// runtimeID returns the container ID that the runtime chose; empty for another owner.
func (k Key) runtimeID() string {
	rest, ok := strings.CutPrefix(k.Owner, record.ContainerOwnerPrefix)
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, "/")
	return id
}

// Add returns the held addresses of a container interface, or acquires some: those that the runtime
// requests, if any.
func (op *Operation) Add(requested []netip.Addr) error {
	w := Want{Families: []record.Family{record.IPv4, record.IPv6}, Any: true, OfRuntime: requested}
	if op.Rec != nil && isHeld(op.Rec.State) {
		held, err := op.verify()
		if err != nil {
			return err
		}
		if held {
			return op.grant(w)
		}
		if inv := op.LastInvocation(); !op.looked && inv.Profile.SingleUseIDs() { // its DEL would act on the ADD
			return newError(Failed, "%s: plugin %s does not hold it, and its container ID cannot be used again", op, inv.Plugin)
		}
	}
	if err := op.checkRequired(Want{Required: requested}); err != nil {
		return err
	}
	if op.Rec != nil && op.Rec.State != record.Tombstone {
		if err := op.giveUp(); err != nil {
			return err
		}
	}
	return op.acquire(w)
}

// idInUseError rejects an ADD while an earlier DEL may act on its container ID.
func (op *Operation) idInUseError() error {
	wait := op.Rec.LateDel.Until.Sub(op.World.Now())
	return &Error{Kind: Busy, RetryAfter: wait, Err: fmt.Errorf("a DEL with an unknown outcome may still act on container ID %s for %s; try again later", op.runtimeID(), wait)}
}

// giveUp releases the attachment of a container interface that is not held. The DEL confirms a loss that
// CHECK reported; until then the record on disk stays held.
func (op *Operation) giveUp() error {
	if op.unconfirmed != nil {
		if err := op.World.Process(); err != nil {
			return err
		}
		inv := op.LastInvocation()
		if err := op.writeAdding(inv); err != nil {
			return err
		}
		if err := op.delEach(op.Rec.Invocations, inv); op.unconfirmed != nil {
			return op.keepUnconfirmed(err)
		}
	}
	return op.release()
}

// Del releases a container interface, with the release delay if its addresses outlive it. Without a record
// the plugin may have what was allocated without the sidecar, or before its journal was lost.
func (op *Operation) Del() error {
	switch {
	case op.Rec == nil || op.Rec.State == record.Tombstone:
	case op.Rec.State == record.Cooldown:
		return op.writeIfDirty()
	case !op.Lost && outlivesContainer(op.Rec, op.Opts):
		return op.unclaim()
	default:
		return op.release()
	}
	inv, _, err := op.newInvocation()
	if err != nil {
		return err
	}
	if err := op.World.Process(); err != nil {
		return err
	}
	r := op.newOrClonedRecord(inv)
	r.State, r.Network, r.Changed, r.Invocations = record.Releasing, inv.Network, op.World.Now(), []call.Invocation{inv}
	op.Dirty = true // release writes it
	op.setRecord(r)
	return op.release()
}

// Check runs the plugin's CHECK, if that tells whether the plugin holds the addresses.
func (op *Operation) Check() error {
	inv := op.LastInvocation()
	switch {
	case op.Rec == nil || op.Rec.State == record.Tombstone: // it may have been added without the sidecar
		var err error
		if inv, _, err = op.newInvocation(); err != nil {
			return err
		}
	case op.Rec.State != record.Held:
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
