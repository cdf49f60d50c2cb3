package attachment

import (
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// This file derives from a record of a previous run what may still act, and until when.

// resume returns a record as this run begins with it. Its ADD and its DELs may have been
// in flight until now.
func (e *Engine) resume(r record.Record) record.Record {
	r = e.capped(r.Clone()) // the caller keeps the original
	now := time.Now()
	rebooted := r.BootID != e.BootID
	live := len(r.Invocations) - 1
	for i := range r.Invocations {
		c := &r.Invocations[i]
		if rebooted && c.Profile.OnNode() {
			c.AddActsUntil = time.Time{} // the reboot has ended it
			continue
		}
		if settles := c.Profile.AddActsUntil(now); i == live && mayHaveAdded(r.State, *c) && settles.After(c.AddActsUntil) {
			c.AddActsUntil = settles
		}
		if mayHaveDeleted(r, *c) {
			markLateDel(&r, *c, now)
		}
	}
	return r
}

// capped bounds deadlines that a clock which was ahead has written: to now plus what
// they were made of.
func (e *Engine) capped(r record.Record) record.Record {
	now := time.Now()
	delay := e.ReleaseDelay
	if delay <= 0 { // switched off since: what it was then
		delay = max(0, r.ReleaseAt.Sub(r.Changed))
	}
	r.ReleaseAt = earlier(r.ReleaseAt, now.Add(delay))
	if r.Expiration != nil && e.Expiration > 0 {
		r.Expiration.Deadline = earlier(r.Expiration.Deadline, now.Add(e.Expiration))
	}
	for i := range r.Invocations {
		c := &r.Invocations[i]
		c.AddActsUntil = earlier(c.AddActsUntil, c.Profile.AddActsUntil(now))
	}
	r.LateDel.Until = earlier(r.LateDel.Until, now.Add(time.Duration(r.LateDel.Seconds)*time.Second))
	return r
}

// earlier returns a deadline, or the bound if that comes first.
func earlier(deadline, bound time.Time) time.Time {
	if deadline.After(bound) {
		return bound
	}
	return deadline
}

// mayHaveAdded reports whether an ADD with the last context may have been in flight when
// the previous run ended. A verification by ADD leaves no trace in the record.
func mayHaveAdded(s record.State, last call.Invocation) bool {
	return s == record.Adding || (s == record.Held || s == record.Cooldown) && last.VerifyBy() == profile.VerifyAdd
}

// mayHaveDeleted reports whether a DEL with a context may have been in flight: of an
// attachment that is held, only with the ID of an earlier ADD.
func mayHaveDeleted(r record.Record, c call.Invocation) bool {
	if r.State == record.Held || r.State == record.Cooldown {
		return c.ContainerID != r.Invocations[len(r.Invocations)-1].ContainerID
	}
	return true
}
