package attachment

import (
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

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
	return s
}

// inferInFlight returns a record as this run begins with it. Its ADD and its DELs may have been
// in flight until now.
func inferInFlight(r Record, o *Options, now time.Time) Record {
	r = capDeadlines(r.Clone(), o, now) // the caller keeps the original
	// The DEL that is to confirm a loss has not ended before now.
	if r.Confirming {
		r.LateDel.Until = now.Add(time.Duration(r.LateDel.Seconds) * time.Second)
	}
	rebooted := r.BootID != o.BootID
	live := len(r.Invocations) - 1
	for i := range r.Invocations {
		inv := &r.Invocations[i]
		if rebooted && inv.Profile.OnNode() {
			inv.AddActsUntil = time.Time{} // the reboot has ended it
			continue
		}
		if settles := inv.Profile.ActsUntil(now); i == live && mayHaveAdded(r.State, *inv) && settles.After(inv.AddActsUntil) {
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
	r.LateDel.Until = atMost(r.LateDel.Until, now, time.Duration(r.LateDel.Seconds)*time.Second)
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
func mayHaveAdded(s State, last call.Invocation) bool {
	return s == Adding && !last.AddRefused ||
		isHeld(s) && last.VerifyBy() == profile.VerifyAdd
}

// mayHaveDeleted reports whether a DEL with an invocation may have been in flight: of a held
// attachment, only with the container ID of an earlier ADD.
func mayHaveDeleted(r Record, inv call.Invocation) bool {
	if isHeld(r.State) {
		return inv.ContainerID != r.Invocations[len(r.Invocations)-1].ContainerID
	}
	return true
}
