package attachment

import (
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Journal makes records durable.
type Journal interface {
	// Write makes a record durable before it returns nil. After an error the disk has either
	// the old or the new record.
	Write(Record) error
	// Remove deletes the record of an owner; a missing record is not an error. After an error, and if the process is
	// killed within a moment after success, the record may still exist.
	Remove(pool, owner string) error
}

// World is all that an operation sees and does: every read of it and every effect on it is a call
// here. The engine executes the calls; the exploration (make model) tries every outcome of each.
type World interface {
	Now() time.Time
	// NewUUID returns the UUID of an expiration, UniqueID a container ID that was never used.
	NewUUID() string
	UniqueID(id string) string
	// Publish replaces the state of the attachment that other operations and readers see.
	Publish(Status)
	// Note reports what operators must know of.
	Note(Note)

	Journal

	// Network is the network behind the pool as it is configured now, or why there is none. Configured
	// is why there was none in this run. Outside reports whether an address is known to be outside the
	// ranges of the configuration.
	Network() (call.Network, error)
	Configured() error
	Outside(netip.Addr) bool
	// NewInvocation returns the invocation of a new ADD, or why there is none.
	NewInvocation(n call.Network, containerID string) (call.Invocation, error)
	// WithContainer returns an invocation with what the runtime passes in this ADD.
	WithContainer(call.Invocation) (call.Invocation, error)
	// Call runs ADD, DEL or CHECK of the plugin; its errors are *call.Error. Holds and Lookup read its store.
	Call(verb string, inv call.Invocation) (call.Result, error)
	Holds(inv call.Invocation, addrs []netip.Addr) (bool, error)
	Lookup(call.Invocation) (call.Result, error)

	// Process waits for a plugin process, once. The wait may end with the client. TryProcess takes one that
	// is free; an error is why the plugin cannot be called.
	Process() error
	TryProcess() (bool, error)
	// Stopping reports that the process is stopping.
	Stopping() bool

	// AssignID makes a container ID of generation 0 that of the attachment, unless another one has it.
	AssignID(id string) error
	// Holder returns the other attachment of the pool that has an address.
	Holder(netip.Addr) (Other, bool)
	// Older reports whether an attachment with an older record has an address of this one.
	Older() bool
	// Reserve sets addresses of a result aside until the next Publish. If another attachment has one
	// of them, the first such is returned, with the address, and nothing is set aside.
	Reserve(network string, ips []netip.Addr) (other Other, taken netip.Addr)
	Unreserve(ips []netip.Addr)
	// Doubt has another attachment verified after this operation: the plugin returned its address to this
	// one. Doubted reports whether this one must be verified, SetDoubted sets that.
	Doubt(Other)
	Doubted() bool
	SetDoubted(bool)
	// Freed has another attachment, which is lost, acquired by its owner: the plugin returned its addresses
	// to this one, which released them.
	Freed(Other)
	// Kept returns another attachment of the pool that is KeptFor the pod of a new container, with its
	// addresses; none without one. EndCooldown ends the cooldown of another attachment, unless an operation
	// is in progress on it.
	Kept(call.Invocation) (Key, []call.Address)
	EndCooldown(Key)
	// EndOldestCooldown ends the cooldown of another attachment of the pool, the oldest one, and reports
	// whether its addresses were released. With addresses, only an attachment that has one of them counts.
	EndOldestCooldown(having []netip.Addr) bool
}

// Other is another attachment.
type Other struct {
	Key
	ID string
	// Lost: the plugin does not hold its addresses.
	Lost      bool
	Addresses []netip.Addr
}

// Note is an observation of an operation.
type Note struct {
	Kind NoteKind
	// Err is the reason, or what failed.
	Err error
}

// NoteKind is the kind of a Note.
type NoteKind string

// The kinds of notes.
const (
	NoteLost       NoteKind = "Lost: the plugin does not hold the allocated addresses"
	NoteReacquired NoteKind = "Reacquired: the plugin holds the attachment again"
	NoteDuplicate  NoteKind = "Duplicate address from the plugin"
	// NoteCompleted: an interrupted acquisition was completed.
	NoteCompleted NoteKind = "Completed: the plugin holds the attachment"
	NoteAdopted   NoteKind = "Adopted the addresses that the plugin's store holds: the journal had no record of them"
	NoteExpired   NoteKind = "Expired"
	NoteDelFailed NoteKind = "DEL failed; it is retried before the attachment is released"
	NoteNoLookup  NoteKind = "Lookup in the plugin's store failed; the plugin is queried"
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
