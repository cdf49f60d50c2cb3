package attachment

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Key identifies an attachment. A record is found by owner and pool, regardless of the present names of
// node and network (docs/design/how-it-works.md, Identity).
type Key struct{ Pool, Owner string }

func (k Key) String() string { return fmt.Sprintf("owner %q in pool %q", k.Owner, k.Pool) }

// Compare orders keys by pool and owner.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Pool, o.Pool), cmp.Compare(k.Owner, o.Owner))
}

// Status is what is known of one attachment. It is a value: a change replaces it as a whole, and never
// modifies what it refers to.
type Status struct {
	// ID is the container ID of generation 0; empty until it is needed.
	ID string
	// Rec is the record, with what was learned since it was written; nil for none. Its states are in
	// docs/design/how-it-works.md, States.
	Rec *Record
	// Dirty: the last write failed, or memory was changed since, so the disk may have an older record.
	// Memory is not used for responses before a write has succeeded.
	Dirty bool
	// Verified is when the plugin last confirmed the addresses in this run; zero for never.
	Verified time.Time
	// Lost: the plugin does not hold the addresses.
	Lost bool
	// ReleaseAs is the action of a release that is due: Retire, or Cleanup if the journal could not be
	// written for a client that may not repeat its request; empty for none.
	ReleaseAs Action
	// WaitsForOwner: it is lost, every DEL has succeeded, and the next request of its owner acquires it
	// again.
	WaitsForOwner bool
	// Failures counts consecutive failures; the work is retried at RetryAt.
	Failures int
	RetryAt  time.Time
}

// Action is what is done to an attachment.
type Action string

// The actions of requests, then those of the background.
const (
	Allocate Action = "allocate"
	Restore  Action = "restore"
	Release  Action = "release"
	// Check runs CHECK for a container interface. Its ADD is counted as Allocate, its DEL as Release.
	Check Action = "check"

	// Expire: an allocation was not confirmed in time.
	Expire Action = "expire"
	// Retire: the owner is not among --owners any more (--retire-owners).
	Retire Action = "retire"
	// Reacquire: an interrupted or lost acquisition was repeated.
	Reacquire Action = "reacquire"
	// Cleanup: a released attachment, or one that was never returned to a client, was deleted from the
	// plugin.
	Cleanup Action = "cleanup"
)

// LastInvocation returns the invocation of the last ADD.
func (s Status) LastInvocation() call.Invocation {
	if s.Rec == nil || len(s.Rec.Invocations) == 0 {
		return call.Invocation{}
	}
	return s.Rec.Invocations[len(s.Rec.Invocations)-1]
}

// addresses returns the recorded addresses; none without a record.
func (s Status) addresses() []netip.Addr { return s.Rec.Addrs() }

// claimedAddresses returns the addresses that the owner must get back: the claimed ones, or
// all recorded ones if none is claimed.
func (s Status) claimedAddresses() []netip.Addr {
	return slices.DeleteFunc(s.addresses(), func(ip netip.Addr) bool {
		return len(s.Rec.Claims) > 0 && !s.Rec.Claimed(FamilyOf(ip))
	})
}

// IDInUse returns the container ID of the last ADD. It is a later generation than ID if a DEL may still
// act on the first one. It is empty before the first ADD.
func (s Status) IDInUse() string {
	if s.Rec != nil {
		return s.Rec.IDInUse()
	}
	return s.ID
}

// OldIDs returns the invocations of earlier ADDs under other container IDs, which need a DEL. One
// under the same ID waits for the release: its DEL would free the held addresses.
func (s Status) OldIDs() []call.Invocation {
	live := s.LastInvocation().ContainerID
	return slices.DeleteFunc(slices.Clone(s.Rec.Invocations), func(inv call.Invocation) bool { return inv.ContainerID == live })
}

// Expired reports whether an allocation was not confirmed in time.
func (s Status) Expired(now time.Time) bool {
	claimed := s.Rec.State == Held || s.Rec.State == Adding && len(s.Rec.Claims) > 0
	return claimed && s.Rec.Expiration != nil && !now.Before(s.Rec.Expiration.Deadline)
}

// Due returns when the attachment must be reconciled, if ever.
func (s Status) Due(now time.Time) (due time.Time, ok bool) {
	r, failing := s.Rec, s.Failures > 0
	if r == nil {
		return time.Time{}, false
	}
	var times []time.Time
	switch {
	case failing:
		times = append(times, s.RetryAt)
	case s.ReleaseAs != "" && (isHeld(r.State) || r.State == Adding):
		times = append(times, now)
	case r.State == Adding && !s.WaitsForOwner, r.State == Releasing:
		times = append(times, s.addActsUntil())
	case r.State == Cooldown:
		times = append(times, r.ReleaseAt)
	case r.State == Tombstone:
		times = append(times, r.LateDel.Until)
	case r.State == Held:
		for _, inv := range s.OldIDs() {
			times = append(times, inv.AddActsUntil)
		}
	}
	if r.Expiration != nil && !(failing && s.Expired(now)) {
		times = append(times, r.Expiration.Deadline)
	}
	if len(times) == 0 {
		return time.Time{}, false
	}
	return slices.MinFunc(times, time.Time.Compare), true
}

// addActsUntil returns the last moment at which an ADD of the record may act; zero for none.
func (s Status) addActsUntil() time.Time {
	var last time.Time
	for _, inv := range s.Rec.Invocations {
		if inv.AddActsUntil.After(last) {
			last = inv.AddActsUntil
		}
	}
	return last
}
