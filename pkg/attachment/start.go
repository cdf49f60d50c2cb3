package attachment

import (
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// Start takes over the records found on disk and deals with each in the
// background: adding, releasing and due cooling ones are finished, held ones
// verified and healed, those that --retire-owners names released. It returns at
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

// mayAct are the contexts of a record of an earlier life, with the last moments at
// which its ADDs may still act.
func (e *Engine) mayAct(r record.Record) []call.Context {
	contexts := r.Contexts
	set := func(i int, at time.Time) {
		contexts = slices.Clone(contexts) // the journal has the record, too
		contexts[i].SettlesAt = at
	}
	for i, c := range r.Contexts {
		if r.BootID != e.BootID && !c.SettlesAt.IsZero() {
			set(i, time.Time{}) // no process of an earlier boot is left to act
		}
	}
	if n := len(contexts); n > 0 && mayHaveAsked(r, e.BootID) {
		// It was cut short: its ADD may have been under way until now.
		last := contexts[n-1]
		if settles := last.Profile.ActsUntil(time.Now()); settles.After(last.SettlesAt) {
			set(n-1, settles)
		}
	}
	return contexts
}

// adopt takes one record over; Engine.mu is held.
func (e *Engine) adopt(r record.Record) {
	a := &entry{key: key{r.Pool, r.Owner}, turn: make(chan struct{}, 1), id: r.ContainerID, rec: &r}
	log := e.logger(a)
	if first, ok := e.byOwner[a.key]; ok {
		log.WithField(fieldOther, first.id).Error("A second record of this owner is left alone: give the first one back and start again")
		return
	}
	r.Contexts = e.mayAct(r)
	a.retire = e.RetireOwners && !e.Owners.Admits(r.Owner)
	e.byOwner[a.key], e.byID[a.id] = a, a
	e.adoptAddresses(a)
	e.errands.add(a)
}

// mayHaveAsked tells whether an ADD may have been under way when the process
// ended. A verification by ADD leaves no trace in the record.
func mayHaveAsked(r record.Record, boot string) bool {
	switch r.State {
	case record.Adding:
		return r.BootID == boot
	case record.Held, record.Cooling:
		return r.Contexts[len(r.Contexts)-1].VerifyBy() == profile.VerifyAdd
	}
	return false
}

// adoptAddresses enters the addresses of a record. Of two that have the same one
// the younger is not believed.
func (e *Engine) adoptAddresses(a *entry) {
	addresses := a.rec.Result.Addresses
	var other *entry
	if a.rec.State != record.Releasing {
		other = e.index.reserve(a, a.rec.Network, addresses)
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
