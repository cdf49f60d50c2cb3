package attachment

import (
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// Start takes over the records found on disk and deals with each in the
// background: adding, releasing and those whose cooldown is over are finished, held ones
// verified and reacquired, those that --retire-owners names released. It returns at
// once; requests are served from then on.
func (e *Engine) Start(records []record.Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range records {
		e.adopt(r)
	}
	// At most half of the processes, so that requests always find a place.
	for range max(1, e.MaxProcesses/2) {
		e.running.Add(1)
		go func() {
			defer e.running.Done()
			for a := e.errands.next(); a != nil; a = e.errands.next() {
				e.attend(a)
			}
		}()
	}
}

// adopt takes one record over; Engine.mu is held.
func (e *Engine) adopt(r record.Record) {
	a := &entry{key: key{r.Pool, r.Owner}, turn: make(chan struct{}, 1), id: r.ContainerID, rec: &r}
	log := e.logger(a)
	if first, ok := e.byOwner[a.key]; ok {
		log.WithField(fieldOther, first.id).Error("A second record of this owner is left alone: give the first one back and start again")
		return
	}
	r = e.resume(r)
	a.retire = e.RetireOwners && !e.Owners.Match(r.Owner)
	e.byOwner[a.key], e.byID[a.id] = a, a
	e.adoptAddresses(a)
	e.errands.add(a)
}

// adoptAddresses enters the addresses of a record. Of two that have the same one
// the younger is not believed.
func (e *Engine) adoptAddresses(a *entry) {
	addresses := a.rec.Result.Addresses
	var other *entry
	if a.rec.State != record.Releasing {
		other, _ = e.index.reserve(a, a.rec.Network, addresses)
	}
	e.index.enter(a, a.rec.Network, addresses)
	if other == nil {
		return
	}
	e.counters.Duplicates++
	e.logger(a).WithField(fieldOther, other.key.String()).Error("Two records have the same address")
	younger := a
	if a.rec.Created.Before(other.rec.Created) {
		younger = other
	}
	younger.doubted = true
}
