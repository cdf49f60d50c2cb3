package engine

import (
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// A start infers from the records of the previous run which calls may still act.

// load adds one record at start; Engine.mu is held.
func (e *Engine) load(r record.Record) {
	interrupted := isHeld(r.State) && time.Until(r.LateDel.Until) > time.Duration(r.LateDel.Seconds)*time.Second
	loaded := e.inferInFlight(r)
	if e.pools[r.Pool] == nil { // a pool that was removed
		e.pools[r.Pool] = newPool(e.opts.MaxProcesses)
	}
	a := &entry{key: key{r.Pool, r.Owner}, shared: e.pools[r.Pool], lock: make(chan struct{}, 1), id: r.ContainerID, rec: &loaded}
	a.verifyDue.Store(r.State == record.Held)
	log := e.logger(a)
	if first, ok := e.byOwner[a.key]; ok {
		log.WithField(fieldOther, first.id).Error("A second record of this owner is ignored: release the first one and start again")
		return
	}
	if interrupted { // while its DEL ran (writeUnconfirmed)
		a.lost, a.dirty = true, true
		e.count(func(c *Counters) { c.Lost++ })
	}
	if e.retires(r) {
		a.releaseAs = ActionRetire
	}
	e.byOwner[a.key], e.byID[a.id] = a, a
	e.sorted = append(e.sorted, a)
	e.records.Store(a.key, a.rec)
	e.indexLoaded(a)
	a.shared.workqueue.add(a)
}

// retires reports whether an attachment is released at start: its owner is not among Owners any more
// (RetireOwners), or it keeps an address that is not excluded any more.
func (e *Engine) retires(r record.Record) bool {
	if keepsExcluded(r.Owner) {
		return !slices.ContainsFunc(r.Addrs(), e.excludes)
	}
	return e.opts.RetireOwners && !e.opts.Owners.Match(r.Owner)
}

// indexLoaded adds the addresses of a loaded record to the index. If two records have the same
// address, the younger one is lost unless a lookup finds it (hasOlder).
func (e *Engine) indexLoaded(a *entry) {
	other, _ := e.index.conflict(a, a.rec.Network, a.rec.Result.Addresses)
	e.index.add(a, a.rec.Network, a.rec.Result.Addresses)
	if other != nil && a.rec.State != record.Releasing {
		e.count(func(c *Counters) { c.Duplicates++ })
		e.logger(a).WithField(fieldOther, other.key.String()).Error("Two records have the same address")
	}
}

// inferInFlight returns a record as this run begins with it. Its ADD and its DELs may have been
// in flight until now.
func (e *Engine) inferInFlight(r record.Record) record.Record {
	r = e.capDeadlines(r.Clone()) // the caller keeps the original
	now := time.Now()
	rebooted := r.BootID != e.opts.BootID
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

// capDeadlines bounds deadlines that a clock ahead of time has written: to now plus the delay
// they were made of.
func (e *Engine) capDeadlines(r record.Record) record.Record {
	now := time.Now()
	delay := e.opts.ReleaseDelay
	if delay <= 0 { // disabled since: the delay at that time
		delay = max(0, r.ReleaseAt.Sub(r.Changed))
	}
	r.ReleaseAt = earlier(r.ReleaseAt, now.Add(delay))
	if r.Expiration != nil && e.opts.Expiration > 0 {
		r.Expiration.Deadline = earlier(r.Expiration.Deadline, now.Add(e.opts.Expiration))
	}
	for i := range r.Invocations {
		inv := &r.Invocations[i]
		inv.AddActsUntil = earlier(inv.AddActsUntil, inv.Profile.ActsUntil(now))
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

// mayHaveAdded reports whether an ADD with the last invocation may have been in flight when the
// previous run ended. A verification by ADD leaves no trace in the record.
func mayHaveAdded(s record.State, last call.Invocation) bool {
	return s == record.Adding && !last.AddRefused ||
		isHeld(s) && last.VerifyBy() == profile.VerifyAdd
}

// mayHaveDeleted reports whether a DEL with an invocation may have been in flight: of a held
// attachment, only with the container ID of an earlier ADD.
func mayHaveDeleted(r record.Record, inv call.Invocation) bool {
	if isHeld(r.State) {
		return inv.ContainerID != r.Invocations[len(r.Invocations)-1].ContainerID
	}
	return true
}
