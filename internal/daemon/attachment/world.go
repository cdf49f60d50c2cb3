package attachment

import (
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// World is all that an operation sees and does: every read of it and every effect on it is a call
// here. The engine executes the calls; the exploration (make model) tries every outcome of each.
type World interface {
	Clock
	Journal
	Plugin
	Neighbours
}

// Clock is time, and what is different each time.
type Clock interface {
	Now() time.Time
	// Unique returns a text that no other call returns, not even in another run.
	Unique() string
}

// Journal makes records durable.
type Journal interface {
	// Write makes a record durable before it returns nil, and with the same change removes those of the owners instead
	// in its pool. After an error the disk has either the old or the new state.
	Write(r Record, instead ...string) error
	// Remove deletes the records of owners; a missing record is not an error. After an error, and if the process is
	// killed within a moment after success, they may still exist.
	Remove(pool string, owners ...string) error
}

// Plugin is the delegated plugin of the attachment's pool, as it is configured now.
type Plugin interface {
	// Network is the network behind the pool, or why there is none.
	Network() (call.Network, error)
	// Outside reports whether an address is known to be outside the ranges of the configuration. An error is why
	// there was no configuration to compare it with in this run.
	Outside(netip.Addr) (bool, error)
	// Invocation returns the invocation of an ADD, or of another verb without one, and why the plugin cannot be
	// called with it. The container ID of a container interface is that of its runtime, whose parameters are in c.
	Invocation(verb string, n call.Network, containerID string, c *call.Container) (call.Invocation, error)
	// WithContainer returns an invocation with what the runtime passes in this ADD.
	WithContainer(call.Invocation, call.Container) (call.Invocation, error)
	// Process waits for a plugin process, once. The wait may end with the client; an error is why the plugin cannot
	// be called.
	Process() error
	// Call runs ADD, DEL or CHECK; its errors are *call.Error.
	Call(verb string, inv call.Invocation) (call.Result, error)
	// Holds reports whether the plugin's store has all addresses for an invocation, Lookup returns what it has.
	// After an error that is unknown.
	Holds(inv call.Invocation, addrs []netip.Addr) (bool, error)
	Lookup(call.Invocation) (call.Result, error)
}

// Neighbours are the readers of this attachment, and the other ones.
type Neighbours interface {
	// Publish replaces the status of the attachment that other operations and readers see.
	Publish(Status)
	// Report reports what operators must know of.
	Report(Event)
	// AssignID makes a container ID of generation 0 that of the attachment, unless another one has it.
	AssignID(id string) error
	// Conflict returns the oldest other attachment of the pool or the network that has one of the addresses, and the
	// address; an invalid address for none. One that is being released is returned if there is no other. Reserve
	// returns none that is being released: until its DEL has succeeded the plugin allocates its addresses to no other
	// owner. If it returns none, the addresses are set aside until the next Reserve or Publish of another record.
	Conflict(network string, ips []netip.Addr) (Other, netip.Addr)
	Reserve(network string, ips []netip.Addr) (Other, netip.Addr)
	// Spare returns the other attachments of the pool that no owner uses: those in cooldown, then those acquired ahead,
	// each the oldest first and without its ID.
	Spare() []Other
	// Keeper returns another container interface that keeps what an invocation would release (Record.Keeps).
	Keeper(call.Invocation) (Other, bool)
	// Settle does work on another attachment, and reports whether it succeeded; unless another operation is in
	// progress there, which is waited for if that is asked.
	Settle(other Other, work Work, wait bool) bool
}

// Work is what Settle does on another attachment.
type Work byte

const (
	// Doubted: this attachment has got an address of the other one, which is verified after this operation.
	Doubted Work = iota + 1
	// Freed: this attachment has got and released an address of the other one, which is lost, or cannot be verified
	// and must be: it gets all of its addresses again.
	Freed
	// Missing: this attachment has got and released an address of the other one, of a container, which has lost that.
	Missing
	// Kept repeats the ADD of the other attachment, if that is held.
	Kept
	// EndCooldown releases a spare attachment.
	EndCooldown
	// Taken: this attachment takes over the record of the other one, which is spare. It fails if that has changed, or
	// is not known to be held.
	Taken
	// Given: the other attachment, which has no record, gets one that is on disk.
	Given
)

// Other is another attachment.
type Other struct {
	Key
	ID string
	// Lost: the plugin does not hold its addresses.
	Lost bool
	// Record is what is recorded of it; nil while it is added for the first time.
	Record *Record
}

// Event is what happened to an attachment: log, metrics and counters follow from it.
type Event struct {
	Kind EventKind
	// Err is the reason, or what failed.
	Err error
}

// EventKind is the kind of an event, and its line in the log.
type EventKind string

// The kinds of events.
const (
	EventLost       EventKind = "Lost: the plugin does not hold the allocated addresses"
	EventReacquired EventKind = "Reacquired: the plugin holds the attachment again"
	EventDuplicate  EventKind = "Duplicate address from the plugin"
	// EventCompleted: an interrupted acquisition was completed.
	EventCompleted EventKind = "Completed: the plugin holds the attachment"
	EventAdopted   EventKind = "Adopted the addresses that the plugin's store holds: the journal had no record of them"
	EventExpired   EventKind = "Expired"
	// EventHandedOver: a container got a lease that was acquired ahead.
	EventHandedOver EventKind = "Handed over a lease that was acquired ahead"
	EventDelFailed  EventKind = "DEL failed; it is retried before the attachment is released"
	// EventNotHeld: of a plugin of which nothing is known.
	EventNotHeld EventKind = "The plugin refused each ADD and each DEL, so it is assumed to hold nothing; if it does, delNotHeld of a profile says how its DEL reports that"
	// EventAddToDelete: also of such a plugin.
	EventAddToDelete EventKind = "The plugin refuses each DEL, which it may do because it holds nothing: its ADD is repeated before a further DEL; delNotHeld of a profile says how its DEL reports that"
	// EventLostNotKept: ADDs of the node may fail until that container ends.
	EventLostNotKept EventKind = "The plugin allocates an address again that a container has lost, and could not be made to keep it; it is tried again with the next attachment that gets it"
	EventNoLookup    EventKind = "Lookup in the plugin's store failed; the plugin is queried"
)

// Options are the rules of the node. A duration of zero disables what it times.
type Options struct {
	// Node is the node's name, a part of each new container ID.
	Node string
	// BootID identifies this boot.
	BootID string
	// Exclude are the addresses that are not allocated. A bare address is a prefix of full length.
	Exclude []netip.Prefix
	// EnableIPv4 and EnableIPv6 enable the address families.
	EnableIPv4, EnableIPv6 bool
	// VerifyInterval is how long a successful verification is valid.
	VerifyInterval time.Duration
	// ReleaseDelay is the cooldown of a released attachment before its DEL.
	ReleaseDelay time.Duration
	// WarmLeases is how many leases are acquired ahead for containers.
	WarmLeases int
	// Expiration is the time within which an expiring allocation must be confirmed.
	Expiration time.Duration
}

// Enabled reports whether a family is enabled.
func (o *Options) Enabled(f Family) bool {
	return f == IPv4 && o.EnableIPv4 || f == IPv6 && o.EnableIPv6
}

// Excludes reports whether an address is excluded from allocation.
func (o *Options) Excludes(ip netip.Addr) bool {
	return slices.ContainsFunc(o.Exclude, func(p netip.Prefix) bool { return p.Contains(ip) })
}
