// Package planner plans what the bridge does: a pure function from what it observes of daemon,
// CiliumNode and agent, and what it remembers, to the actions that make them agree
// (docs/design/bridge.md). It depends on neither Kubernetes nor HTTP.
package planner

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// OwnerPrefix begins the owner of each slot at the daemon: "ciliumnode-<n>".
const OwnerPrefix = "ciliumnode-"

const (
	// resourcePrefix begins AllocationIP.resource of the bridge's pool entries; the owner of the slot
	// follows.
	resourcePrefix = "delegated-ipam/"
	// suspendedOwner is the owner of a pool entry that must not be allocated: the agent allocates an entry
	// with an owner to that owner only, without looking whether it is used or in release. No pod,
	// "namespace/name", has this one. A restored endpoint still gets its address.
	suspendedOwner = "delegated-ipam:suspended"
)

// Ping is an address that no pool has. The agent responds to a mark on it with do-not-release, and
// writes its used addresses. The response shows that the agent runs and has seen the earlier writes.
var Ping = netip.IPv4Unspecified()

// Owner returns the daemon's owner of slot n.
func Owner(n int) string { return OwnerPrefix + strconv.Itoa(n) }

// ParseOwner returns the slot of a daemon's owner; false if the owner is not one of a slot.
func ParseOwner(owner string) (slot int, ok bool) {
	digits, ok := strings.CutPrefix(owner, OwnerPrefix)
	n, err := strconv.Atoi(digits)
	// Each number has one spelling: "01" is a foreign owner.
	return n, ok && err == nil && n >= 0 && strconv.Itoa(n) == digits
}

// Slot is one attachment of the daemon that belongs to the node.
type Slot struct {
	Number int
	// Addresses are the addresses that it holds or held, one of each family.
	Addresses []netip.Addr
	// Held reports whether it is allocated and the plugin has not denied it.
	Held bool
	// Outside reports whether an address is outside the ranges from which the plugin allocates now:
	// another node may have it. Unconfigured reports that the ranges are unknown, because the pool has
	// no configuration or profiles now.
	Outside, Unconfigured bool
	// Unclaimed are addresses of further families that the plugin has for it: the daemon has served the
	// family since, or the address replaced a lost one.
	Unclaimed []netip.Addr
}

// Entry is an entry of spec.ipam.pool or of status.ipam.used.
type Entry struct {
	// Owner is, of a pool entry, the only client to which the agent allocates it, empty for any; of a
	// used address, its user, such as "namespace/pod" or "router".
	Owner string `json:"owner"`
	// Resource names the owner of the slot (EntryOf).
	Resource string `json:"resource"`
}

// EntryOf returns the entry of an address of slot n.
func EntryOf(n int, suspended bool) Entry {
	e := Entry{Resource: resourcePrefix + Owner(n)}
	if suspended {
		e.Owner = suspendedOwner
	}
	return e
}

// Slot returns the slot of the entry; false if the bridge did not write it.
func (e Entry) Slot() (int, bool) {
	owner, ok := strings.CutPrefix(e.Resource, resourcePrefix)
	if !ok {
		return 0, false
	}
	return ParseOwner(owner)
}

// ofPod reports whether a pod uses an address: its owner is "namespace/name". The agent uses the others.
func (e Entry) ofPod() bool { return strings.Contains(e.Owner, "/") }

// Suspended reports whether the agent does not allocate the entry any more.
func (e Entry) Suspended() bool { return e.Owner == suspendedOwner }

// Handshake is the state of an address in status.ipam.release-ips.
type Handshake string

// The states, as in Cilium (pkg/ipam/option).
const (
	MarkedForRelease Handshake = "marked-for-release"
	ReadyForRelease  Handshake = "ready-for-release"
	DoNotRelease     Handshake = "do-not-release"
	Released         Handshake = "released"
)

// Observed is the state of daemon, CiliumNode and node at one moment.
type Observed struct {
	// Slots are the daemon's list.
	Slots []Slot
	// Pool is spec.ipam.pool; Used is status.ipam.used; Handshakes is status.ipam.release-ips.
	Pool       map[netip.Addr]Entry
	Used       map[netip.Addr]Entry
	Handshakes map[netip.Addr]Handshake
	// Pods is the number of pods of the node that have or need an address, 0 if unknown. The agent
	// writes Used much later.
	Pods int
	// PodIPs are the addresses of these pods, nil if unknown. PodsPending reports whether Pods and PodIPs
	// will soon be known.
	PodIPs      map[netip.Addr]bool
	PodsPending bool
}

// InUse reports whether the agent uses an address, or a pod has it: a new CiliumNode does not show yet what is used, and
// one of an etcd that was restored has answers of the agent from before the address was used again.
func (o Observed) InUse(ip netip.Addr) bool {
	_, used := o.Used[ip]
	return used || o.PodIPs[ip]
}

// Remembered is what the bridge knows of earlier moments, and loses at its end.
type Remembered struct {
	// Drained are the suspended addresses that have been unused for long enough since the agent
	// responded to the ping.
	Drained map[netip.Addr]bool
	// Unasked are the addresses that the agent has given up although this bridge has not seen a mark on them.
	// An etcd that was restored has such answers from before the agent allocated them again.
	Unasked map[netip.Addr]bool
	// Refused are the addresses that the daemon has recently not restored, ReleaseFailed those that it
	// has recently not released.
	Refused, ReleaseFailed map[netip.Addr]bool
	// Exhausted reports whether an acquisition has recently failed. Depleted reports whether the plugin
	// has no more addresses, or all acquisitions have failed for a while.
	Exhausted, Depleted bool
	// RangeSize is the number of slots for which the node's own range has turned out to have addresses;
	// 0 if it is unknown.
	RangeSize int
	// Batch is how many slots are acquired before the next publication; 0 for no limit.
	Batch int
	// Excess is how many slots above the watermark have been free for the release delay.
	Excess int
	// Overlooked reports whether the agent may have overlooked a handshake, and needs a change of the CiliumNode.
	Overlooked bool
	// Headroom is how many free slots are needed in addition, because none was free.
	Headroom int
}

// sortedAddrs returns the keys of a map in order, so that each state has one plan.
func sortedAddrs[V any](m map[netip.Addr]V) []netip.Addr {
	return slices.SortedFunc(maps.Keys(m), netip.Addr.Compare)
}
