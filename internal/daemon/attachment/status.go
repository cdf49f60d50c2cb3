package attachment

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
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
	// Rec is the record, with what was learned since it was written; nil for none. Its states are in doc.go.
	Rec *Record
	// Dirty: the last write failed, or memory was changed since, so the disk may have an older record.
	// Memory is not used for responses before a write has succeeded.
	Dirty bool
	// Instead is the other owner under which the disk may still have the record, after a hand-over whose write
	// failed; empty for none. The next write removes that one.
	Instead string
	// Verified is when the plugin last confirmed the addresses in this run; zero for never.
	Verified time.Time
	// Lost: the plugin does not hold the addresses.
	Lost bool
	// VerifyDue: it must be verified before it is trusted, because the process started, because the plugin has
	// returned its address to another owner, or because the plugin's store lacked it.
	VerifyDue bool
	// ReleaseAs is the action of a release that is due: Retire, or Cleanup if the journal could not be
	// written for a client that may not repeat its request; empty for none.
	ReleaseAs Action
	// WaitsForOwner: it is lost, every DEL has succeeded, and the next request of its owner acquires it
	// again.
	WaitsForOwner bool
	// DelInVain: the plugin refused the DEL of what it had returned just before.
	DelInVain bool
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
	// Acquire: a lease was acquired ahead.
	Acquire Action = "acquire"
	// Reacquire: an interrupted or lost acquisition was repeated.
	Reacquire Action = "reacquire"
	// Cleanup: a released attachment, or one that was never returned to a client, was deleted from the
	// plugin.
	Cleanup Action = "cleanup"
)

// LastInvocation returns the invocation of the last ADD.
func (s Status) LastInvocation() call.Invocation { return s.Rec.last() }

// addresses returns the recorded addresses; none without a record.
func (s Status) addresses() []netip.Addr { return s.Rec.Addrs() }

// claimedAddresses returns the addresses that the owner must get back: the claimed ones, or
// all recorded ones if none is claimed.
func (s Status) claimedAddresses() []netip.Addr {
	return slices.DeleteFunc(s.addresses(), func(ip netip.Addr) bool {
		return len(s.Rec.Claims) > 0 && !s.Rec.Claimed(FamilyOf(ip))
	})
}

// OldIDs returns the invocations of earlier ADDs under other container IDs, which need a DEL. One
// under the same ID waits for the release: its DEL would free the held addresses. So does one that keeps what is lost.
func (s Status) OldIDs() []call.Invocation {
	live := s.LastInvocation().ContainerID
	return slices.DeleteFunc(slices.Clone(s.Rec.Invocations), func(inv call.Invocation) bool { return inv.KeepsLost || inv.ContainerID == live })
}

// Expired reports whether an allocation was not confirmed in time.
func (s Status) Expired(now time.Time) bool {
	claimed := s.Rec.State == Held || s.Rec.State == Adding && s.Rec.InUse()
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
		times = append(times, r.ActsUntil(time.Time{}))
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

// isHeld reports whether the plugin has the addresses in a state, for the present or the last owner.
func isHeld(s State) bool { return s == Held || s == Cooldown }

// A start infers from the records of the previous run which calls may still act.

// Load returns the state with which a run begins, by the record that the previous one left. alive reports
// that it is of a container whose network namespace exists: then another boot ID is not a reboot.
func Load(r Record, o *Options, now time.Time, alive bool) Status {
	alive = alive && r.BootID != o.BootID
	if alive {
		r.BootID = o.BootID
	}
	loaded := inferInFlight(r, o, now)
	s := Status{ID: r.ContainerID, Rec: &loaded, Dirty: alive}
	if OfContainer(r.Owner) && r.BootID != o.BootID && r.State != Tombstone { // no container has survived the reboot
		switch {
		case loaded.State == Cooldown:
		case loaded.State == Held && o.ReleaseDelay > 0:
			loaded.State, loaded.Changed, loaded.ReleaseAt = Cooldown, now, now.Add(o.ReleaseDelay)
			s.Dirty = true // the delay begins once
		default:
			loaded.State = Releasing
		}
		loaded.Claims, loaded.GivenUp = nil, nil
	}
	if r.Confirming {
		loaded.Confirming, s.Lost, s.Dirty = false, true, true
	}
	s.Lost = s.Lost || isHeld(loaded.State) && loaded.lostInPart()
	s.VerifyDue = loaded.State == Held || loaded.State == Cooldown && loaded.Lent != nil
	return s
}

// inferInFlight returns a record as this run begins with it. Its ADD and its DELs may have been
// in flight until now.
func inferInFlight(r Record, o *Options, now time.Time) Record {
	r = capDeadlines(r.Clone(), o, now) // the caller keeps the original
	rebooted := r.BootID != o.BootID
	live := len(r.Invocations) - 1
	for i := range r.Invocations {
		inv := &r.Invocations[i]
		if rebooted && inv.Profile.OnNode() {
			inv.AddActsUntil = time.Time{} // the reboot has ended it
			continue
		}
		added := inv.KeepsLost || i == live && mayHaveAdded(r, *inv)
		if settles := inv.Profile.ActsUntil(now); added && settles.After(inv.AddActsUntil) {
			inv.AddActsUntil = settles
		}
		if mayHaveDeleted(r, *inv) {
			markLateDel(&r, *inv, now)
		}
	}
	return r
}

// capDeadlines bounds times that a clock ahead of time has written: deadlines to now plus the delay they were made of, the
// others to now. They are relative to now, so that a clock that is set back later does not extend them, either.
func capDeadlines(r Record, o *Options, now time.Time) Record {
	delay := o.ReleaseDelay
	if delay <= 0 { // disabled since: the delay at that time
		delay = max(0, r.ReleaseAt.Sub(r.Changed))
	}
	r.ReleaseAt = atMost(r.ReleaseAt, now, delay)
	r.Created, r.Changed = atMost(r.Created, now, 0), atMost(r.Changed, now, 0)
	if r.Expiration != nil {
		limit := o.Expiration
		if limit <= 0 {
			limit = r.Expiration.Deadline.Sub(now)
		}
		r.Expiration.Deadline = atMost(r.Expiration.Deadline, now, limit)
	}
	for i := range r.Invocations {
		inv := &r.Invocations[i]
		inv.AddActsUntil = atMost(inv.AddActsUntil, now, inv.Profile.ActsUntil(now).Sub(now))
	}
	r.LateDel.Until = r.LateDel.ActsUntil(now)
	return r
}

// atMost returns a time of a record, but not later than a limit after now. The zero time stays.
func atMost(t, now time.Time, limit time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(min(t.Sub(now), limit)) // with the monotonic clock of now
}

// mayHaveAdded reports whether an ADD with the last invocation may have been in flight when the
// previous run ended. A verification by ADD leaves no trace in the record.
func mayHaveAdded(r Record, last call.Invocation) bool {
	verified := last.VerifyBy() == profile.VerifyAdd
	if OfContainer(r.Owner) { // Operation.call, and Operation.Keep
		verified = last.Profile.Key() == profile.KeyedByPod
	}
	return r.State == Adding && !last.AddRefused || isHeld(r.State) && verified
}

// mayHaveDeleted reports whether a DEL with an invocation may have been in flight: of a held
// attachment, only with the container ID of an earlier ADD, unless it was to confirm a loss.
func mayHaveDeleted(r Record, inv call.Invocation) bool {
	if isHeld(r.State) && !r.Confirming {
		return inv.ContainerID != r.last().ContainerID
	}
	return true
}
