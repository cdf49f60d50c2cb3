package planner

import (
	"fmt"
	"net/netip"
)

type Kind string

// The kinds of action (docs/design/bridge.md, Order of writes).
const (
	Acquire        Kind = "acquire"          // allocates slot Slot at the sidecar
	Restore        Kind = "restore"          // allocates exactly IPs to slot Slot at the sidecar
	Publish        Kind = "publish"          // writes IPs to the pool as entries of slot Slot
	Suspend        Kind = "suspend"          // writes IPs to the pool so that the agent does not allocate them any more
	MarkForRelease Kind = "mark-for-release" // writes marked-for-release: the agent responds whether it releases IPs
	Unmark         Kind = "unmark"           // removes IPs from the handshakes
	Withdraw       Kind = "withdraw"         // removes IPs, which the agent has released, from the pool
	Release        Kind = "release"          // releases IPs of slot Slot at the sidecar
	MarkReleased   Kind = "mark-released"    // writes released: the agent removes the handshakes of IPs
	Report         Kind = "report"           // changes nothing; Reason is the condition that IPs are in
)

// Reasons of conditions, in CamelCase as for a Kubernetes Event.
const (
	ForeignEntry        = "ForeignPoolEntry"    // the bridge did not write this entry of the pool
	AddressNotHeld      = "AddressNotHeld"      // a used address is not held by the sidecar and could not be restored
	AddressOutsideRange = "AddressOutsideRange" // a used address is outside the ranges from which the plugin allocates now
)

// Action is one step of a plan. Each is safe after those before it, and safe to repeat.
type Action struct {
	Kind Kind
	// Slot is the number of the slot; 0 for a Report and for an address of no slot.
	Slot int
	// IPs are the addresses; empty for Acquire.
	IPs []netip.Addr
	// Also is for a Restore the address of the other family that the slot had, if it is known and
	// not held: the plugin is asked for both at once.
	Also   netip.Addr
	Reason string
}

func (a Action) String() string {
	switch {
	case a.Kind == Report:
		return fmt.Sprintf("%s %s %v", a.Kind, a.Reason, a.IPs)
	case a.Kind == Acquire:
		return fmt.Sprintf("%s slot %d", a.Kind, a.Slot)
	case a.Also.IsValid():
		return fmt.Sprintf("%s %v with %s of slot %d", a.Kind, a.IPs, a.Also, a.Slot)
	}
	return fmt.Sprintf("%s %v of slot %d", a.Kind, a.IPs, a.Slot)
}
