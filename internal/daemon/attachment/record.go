package attachment

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// State is the state of an attachment in the protocol (doc.go).
type State string

const (
	// Adding: an ADD may have run; whether the plugin holds addresses is unknown.
	Adding State = "adding"
	// Held: the plugin returned the addresses, and the API may have allocated them.
	Held State = "held"
	// Cooldown: released by the API; the plugin holds the addresses until ReleaseAt.
	Cooldown State = "cooldown"
	// Releasing: a DEL must succeed; the plugin may still hold the addresses.
	Releasing State = "releasing"
	// Tombstone: no address is held; until LateDel.Until the record keeps the generation of the
	// container ID that the next ADD may use (docs/design/how-it-works.md, Identity).
	Tombstone State = "tombstone"
)

// Family is an address family in the API's words.
type Family string

// The families of the API (swagger.yaml, ipam-family).
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// FamilyOf returns the family of an address. A 4-in-6 address is IPv4.
func FamilyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// ContainerOwnerPrefix begins the owner of a container interface that a container runtime adds
// (docs/install/pods.md). CNI_CONTAINERID and CNI_IFNAME follow.
const ContainerOwnerPrefix = "cni/"

// ContainerOwner returns the owner of a container interface.
func ContainerOwner(containerID, ifName string) string {
	return ContainerOwnerPrefix + containerID + "/" + ifName
}

// OfContainer reports whether an owner is a container interface. Only its runtime knows whether its
// addresses are in use, unless they are in cooldown.
func OfContainer(owner string) bool { return strings.HasPrefix(owner, ContainerOwnerPrefix) }

// WarmOwnerPrefix begins the owner of a lease that was acquired ahead (warm.go). A unique text follows.
const WarmOwnerPrefix = "warm/"

// IsWarm reports whether an owner is a lease that was acquired ahead, and that no container has yet.
func IsWarm(owner string) bool { return strings.HasPrefix(owner, WarmOwnerPrefix) }

// Lent is to whom a lease that was acquired ahead was handed.
type Lent struct {
	// Warm is the owner under which it was acquired, and to which it returns.
	Warm string `json:"warm"`
	// Container is what the container's runtime passed. The plugin does not know it.
	Container call.Container `json:"container"`
}

// RuntimeID returns the container ID that the runtime chose for a container interface; empty for another
// owner.
func RuntimeID(owner string) string {
	if !OfContainer(owner) {
		return ""
	}
	return strings.Split(owner, "/")[1]
}

// Expiration is the deadline by which an allocation must be confirmed.
type Expiration struct {
	// UUID is the expiration-uuid that the API returned.
	UUID string `json:"uuid"`
	// Deadline is in wall-clock time.
	Deadline time.Time `json:"deadline"`
}

// LateDel is a DEL with an unknown outcome: the plugin may still act on it.
type LateDel struct {
	// Until is the last moment at which it may act, in wall-clock time; zero for none.
	Until time.Time `json:"until"`
	// Seconds is how long it may act after its process ended, from the profile of its plugin.
	// It bounds Until after the clock was set back.
	Seconds int `json:"seconds"`
}

// ActsUntil returns until when the DEL may act, by a clock that may have been set back since.
func (l LateDel) ActsUntil(now time.Time) time.Time {
	return atMost(l.Until, now, time.Duration(l.Seconds)*time.Second)
}

// Record is the durable form of an attachment.
type Record struct {
	// ContainerID is the container ID of generation 0.
	ContainerID string `json:"containerID"`
	// Generation belongs to the container ID of the next ADD: no DEL with that ID may still act.
	Generation int `json:"generation,omitempty"`
	// Confirming: CHECK reported that the plugin does not hold it, and the DEL that is to confirm that may run.
	Confirming bool `json:"confirming,omitempty"`
	// LateDel is the last DEL that may still act on the ID of an earlier generation.
	LateDel LateDel `json:"lateDel,omitzero"`
	Owner   string  `json:"owner"`
	Pool    string  `json:"pool"`
	// User is the ID of the user who requested it first; 0 for root, our own user and a container runtime.
	User  int    `json:"user,omitempty"`
	Node  string `json:"node"`
	State State  `json:"state"`

	// Network is the network whose plugin returned the addresses.
	Network string `json:"network"`
	// Result is from the last ADD; in state adding it has the previously held addresses, if any.
	Result call.Result `json:"result,omitzero"`
	// Claims are the families that are allocated to the owner and not released.
	Claims []Family `json:"claims,omitempty"`
	// GivenUp are addresses that no other attachment gets: those of the owner that were replaced, until a response has
	// the new ones, and those that a new container takes over from its pod.
	GivenUp []netip.Addr `json:"givenUp,omitempty"`
	// Expiration is nil for a confirmed attachment.
	Expiration *Expiration `json:"expiration,omitempty"`
	// Lent is set while a container has a lease that was acquired ahead, under a container ID of the daemon.
	Lent *Lent `json:"lent,omitempty"`
	// Invocations still need a successful DEL, oldest first; the last one made the last ADD.
	Invocations []call.Invocation `json:"invocations"`

	// ReleaseAt is when an attachment in cooldown is released.
	ReleaseAt time.Time `json:"releaseAt,omitzero"`
	// BootID is the boot of the last ADD, hand-over, verification or DEL.
	BootID string `json:"bootID"`

	Created time.Time `json:"created"`
	// Changed is when the state last changed.
	Changed time.Time `json:"changed"`
}

// Clone returns a copy that shares nothing that is modified in place.
func (r Record) Clone() Record {
	r.Claims = slices.Clone(r.Claims)
	r.GivenUp = slices.Clone(r.GivenUp)
	r.Invocations = slices.Clone(r.Invocations)
	r.Result.Addresses = slices.Clone(r.Result.Addresses)
	if r.Expiration != nil {
		r.Expiration = new(*r.Expiration)
	}
	return r
}

// last returns the invocation of the last ADD; empty if there is none.
func (r *Record) last() call.Invocation {
	if r == nil || len(r.Invocations) == 0 {
		return call.Invocation{}
	}
	return r.Invocations[len(r.Invocations)-1]
}

// Container returns what the runtime of a container interface passed in its last ADD, without the keys of the network
// configuration.
func (r Record) Container() call.Container {
	if r.Lent != nil {
		return r.Lent.Container
	}
	inv := r.last()
	return call.Container{Attachment: call.Attachment{ContainerID: inv.ContainerID, IfName: inv.IfName}, NetNS: inv.NetNS, Args: inv.Args}
}

// LastResult returns the result of the last ADD, as the plugin returned it; nil if it is not known.
func (r Record) LastResult() json.RawMessage { return r.last().PrevResult }

// Claimed reports whether the family is allocated to the owner.
func (r Record) Claimed(f Family) bool { return slices.Contains(r.Claims, f) }

// Address returns the address of a family that a response contains: the last one, as cilium-cni
// does with a plugin's result.
func (r Record) Address(f Family) (call.Address, bool) {
	for _, a := range slices.Backward(r.Result.Addresses) {
		if FamilyOf(a.Addr()) == f {
			return a, true
		}
	}
	return call.Address{}, false
}

// Addresses returns the addresses with their prefixes, in the plugin's order; none for a nil
// record.
func (r *Record) Addresses() []call.Address {
	if r == nil {
		return nil
	}
	return r.Result.Addresses
}

// Addrs returns the bare addresses, in the plugin's order; none for a nil record.
func (r *Record) Addrs() []netip.Addr { return call.Addrs(r.Addresses()) }

// InUse reports whether the owner may use an address.
func (r Record) InUse() bool { return len(r.Claims)+len(r.GivenUp) > 0 }

// Reserved returns the addresses that no other attachment gets; none for a nil record.
func (r *Record) Reserved() []netip.Addr {
	if r == nil {
		return nil
	}
	return slices.Concat(r.Addrs(), r.GivenUp)
}

// IDInUse returns the container ID of the last ADD, under which the plugin has the addresses; before
// the first ADD it is the ID of generation 0, of a container interface its runtime's.
func (r Record) IDInUse() string {
	return cmp.Or(r.last().ContainerID, RuntimeID(r.Owner), r.ContainerID)
}

// ActsUntil returns the last moment at which an ADD of the record may act, if that is after now; zero otherwise.
func (r Record) ActsUntil(now time.Time) (last time.Time) {
	for _, inv := range r.Invocations {
		if inv.AddActsUntil.After(now) && inv.AddActsUntil.After(last) {
			last = inv.AddActsUntil
		}
	}
	return last
}

// OlderThan reports whether the record is the older one. A nil one is still to be written, and so the younger.
func (r *Record) OlderThan(o *Record) bool {
	if r == nil || o == nil {
		return r != nil
	}
	return cmp.Or(r.Created.Compare(o.Created), cmp.Compare(r.ContainerID, o.ContainerID)) < 0
}

// Holds reports whether the record has the address.
func (r Record) Holds(ip netip.Addr) bool { return slices.Contains(r.Addrs(), ip) }

// maxContainerID bounds the container IDs of the daemon, in bytes.
const maxContainerID = 128

// Validate returns an error that names the invalid field if the engine could not act on the
// record.
func (r Record) Validate() error {
	var problem string
	switch {
	case len(r.ContainerID) > maxContainerID || !call.ValidRuntimeID(r.ContainerID):
		problem = fmt.Sprintf("containerID %q is not one of the CNI specification with at most %d bytes", r.ContainerID, maxContainerID)
	case r.Owner == "" || r.Pool == "":
		problem = fmt.Sprintf("owner %q and pool %q must not be empty", r.Owner, r.Pool)
	case !slices.Contains([]State{Adding, Held, Cooldown, Releasing, Tombstone}, r.State):
		problem = fmt.Sprintf("unknown state %q", r.State)
	case len(r.Invocations) == 0 && r.State != Tombstone:
		problem = "no invocation"
	case (r.State == Held || r.State == Cooldown) && len(r.Result.Addresses) == 0:
		problem = fmt.Sprintf("%s without an address", r.State)
	case slices.ContainsFunc(r.Reserved(), func(ip netip.Addr) bool { return !ip.IsValid() || ip.Is4In6() }):
		problem = fmt.Sprintf("invalid address among %s", r.Reserved())
	case slices.ContainsFunc(r.Claims, func(f Family) bool { _, ok := r.Address(f); return !ok }):
		problem = fmt.Sprintf("families %q are claimed, one without an address", r.Claims)
	case r.Lent != nil && (!OfContainer(r.Owner) || !IsWarm(r.Lent.Warm)):
		problem = fmt.Sprintf("%q is not lent to a container", r.Lent.Warm)
	case slices.ContainsFunc(r.Invocations, func(inv call.Invocation) bool { return !json.Valid(inv.Config) }):
		problem = "an invocation has an invalid configuration"
	default:
		return nil
	}
	return fmt.Errorf("record of container ID %s: %s", r.IDInUse(), problem)
}
