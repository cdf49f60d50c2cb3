// Package planner decides what the bridge does next: a pure function from what
// is seen of the sidecar, the CiliumNode and the agent to the actions that bring
// them together (docs/bridge.md). It knows neither Kubernetes nor HTTP.
package planner

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// OwnerPrefix begins the owner of each slot at the sidecar: "ciliumnode-<n>".
const OwnerPrefix = "ciliumnode-"

const (
	// resourcePrefix marks a pool entry as ours and names its slot (AllocationIP.resource).
	resourcePrefix = "delegated-ipam/" + OwnerPrefix
	// fence is the owner of a pool entry that must not be handed out any more: the
	// agent gives an entry with an owner to that owner only, and nobody is called so.
	// An endpoint that the agent restores still gets it.
	fence = "delegated-ipam/on-its-way-back"
)

// Probe is an address that no pool has. The agent answers a mark on it with
// do-not-release and writes afresh what it uses: so it is known to live, and to
// have seen what was written before.
var Probe = netip.IPv4Unspecified()

// Owner is the sidecar's owner of slot n.
func Owner(n int) string { return OwnerPrefix + strconv.Itoa(n) }

// Number is the slot of a sidecar's owner; false for every other owner.
func Number(owner string) (int, bool) {
	digits, ok := strings.CutPrefix(owner, OwnerPrefix)
	n, err := strconv.Atoi(digits)
	// One spelling for each number: "01" is somebody else's.
	return n, ok && err == nil && n >= 0 && strconv.Itoa(n) == digits
}

// Slot is one attachment of the sidecar that is the node's.
type Slot struct {
	Number int
	// Addresses are those that it holds or held, one for each family.
	Addresses []netip.Addr
	// Held tells that it is handed out, and that the plugin has not denied it.
	Held bool
}

// Entry is one of spec.ipam.pool.
type Entry struct{ Owner, Resource string }

// EntryOf is the entry of an address of slot n; fenced if it is on its way back.
func EntryOf(n int, fenced bool) Entry {
	e := Entry{Resource: resourcePrefix + strconv.Itoa(n)}
	if fenced {
		e.Owner = fence
	}
	return e
}

// Slot is the number of the slot that the entry belongs to; false if it is not ours.
func (e Entry) Slot() (int, bool) {
	owner, ok := strings.CutPrefix(e.Resource, strings.TrimSuffix(resourcePrefix, OwnerPrefix))
	if !ok {
		return 0, false
	}
	return Number(owner)
}

// Fenced tells whether the agent hands the entry out no more.
func (e Entry) Fenced() bool { return e.Owner == fence }

// Handshake is the state of an address in status.ipam.release-ips.
type Handshake string

// The states, as Cilium has them (pkg/ipam/option).
const (
	Marked       Handshake = "marked-for-release"
	Ready        Handshake = "ready-for-release"
	DoNotRelease Handshake = "do-not-release"
	Released     Handshake = "released"
)

// View is what is seen at one moment.
type View struct {
	// Slots are the sidecar's list.
	Slots []Slot
	// Pool is spec.ipam.pool; Used is status.ipam.used; Release is status.ipam.release-ips.
	Pool    map[netip.Addr]Entry
	Used    map[netip.Addr]Entry
	Release map[netip.Addr]Handshake
	// Rested are the fenced addresses that have been seen unused for long enough since
	// the agent answered the probe (--excess-ip-release-delay).
	Rested map[netip.Addr]bool
	// Refused are addresses that the sidecar would not restore of late.
	Refused map[netip.Addr]bool
	// Exhausted tells that an acquisition failed of late.
	Exhausted bool
}

// Settings are how many addresses the node has, as Cilium's own options of
// these names (CiliumNode spec.ipam); all in slots.
type Settings struct {
	// MinAllocate is how many there are at least.
	MinAllocate int
	// PreAllocate is how many are free.
	PreAllocate int
	// MaxAllocate is how many there are at most; 0 for no limit.
	MaxAllocate int
	// MaxAboveWatermark is how many more than PreAllocate may be free before one goes back.
	MaxAboveWatermark int
	// ReleaseExcess lets addresses go back.
	ReleaseExcess bool
}

// agentsOwn is how many addresses the agent takes for itself: router, health
// and ingress. With fewer in the pool it may end at its start.
const agentsOwn = 3

// sortedAddrs are the keys of a map, in order, so that one view has one plan.
func sortedAddrs[V any](m map[netip.Addr]V) []netip.Addr {
	return slices.SortedFunc(maps.Keys(m), netip.Addr.Compare)
}
