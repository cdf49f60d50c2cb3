package planner

import (
	"fmt"
	"net/netip"
)

// Kind is what an action does.
type Kind string

const (
	// Acquire asks the sidecar for slot Slot.
	Acquire Kind = "acquire"
	// Restore asks the sidecar to hold exactly IPs for slot Slot.
	Restore Kind = "restore"
	// Publish writes IPs to the pool, as of slot Slot.
	Publish Kind = "publish"
	// Fence writes IPs to the pool so that the agent hands them out no more.
	Fence Kind = "fence"
	// Mark asks the agent to let go of IPs: marked-for-release.
	Mark Kind = "mark"
	// Clear takes IPs out of the handshake.
	Clear Kind = "clear"
	// Withdraw removes IPs, which the agent has let go of, from the pool.
	Withdraw Kind = "withdraw"
	// Free releases IPs of slot Slot at the sidecar.
	Free Kind = "free"
	// Finish tells the agent that IPs are gone: released.
	Finish Kind = "finish"
	// Report changes nothing; Reason says what a person should know.
	Report Kind = "report"
)

// Reason is why something is reported.
type Reason string

const (
	// Foreign: the pool has an entry that is not ours.
	Foreign Reason = "ForeignPoolEntry"
	// Unheld: an address in use is not held by the sidecar and could not be restored.
	Unheld Reason = "AddressNotHeld"
)

// Action is one step. Each is safe after those before it, and safe to repeat.
type Action struct {
	Kind   Kind
	Slot   int
	IPs    []netip.Addr
	Reason Reason
}

// String is the action as a log or a test shows it.
func (a Action) String() string {
	switch a.Kind {
	case Report:
		return fmt.Sprintf("%s %s %v", a.Kind, a.Reason, a.IPs)
	case Acquire:
		return fmt.Sprintf("%s slot %d", a.Kind, a.Slot)
	default:
		return fmt.Sprintf("%s %v of slot %d", a.Kind, a.IPs, a.Slot)
	}
}
