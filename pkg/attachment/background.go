package attachment

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// The waits between two tries of background work: the first, doubled with each
// failure, up to the longest, each with up to a quarter more so that a hundred
// attachments do not ask a sick plugin in step.
const (
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
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

// adopt takes one record over; Engine.mu is held.
func (e *Engine) adopt(r record.Record) {
	a := &entry{key: key{r.Pool, r.Owner}, turn: make(chan struct{}, 1), id: r.ContainerID, rec: &r}
	log := e.logger(a)
	if first, ok := e.byOwner[a.key]; ok {
		log.WithField(fieldOther, first.id).Error("A second record of this owner is left alone: give the first one back and start again")
		return
	}
	for i := range r.Contexts {
		if r.BootID != e.BootID {
			r.Contexts[i].SettlesAt = time.Time{} // no process of an earlier boot is left to act
		}
	}
	if n := len(r.Contexts); n > 0 && mayHaveAsked(r, e.BootID) {
		// It was cut short: its ADD may have been under way until now.
		last := &r.Contexts[n-1]
		if settles := time.Now().Add(last.Profile.AddOutlives()); settles.After(last.SettlesAt) {
			last.SettlesAt = settles
		}
	}
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
		return r.Contexts[len(r.Contexts)-1].Profile.VerifyBy == profile.VerifyAdd
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

// attend does what is due for an attachment.
func (e *Engine) attend(a *entry) {
	a, err := e.enter(e.life, a.key)
	if err != nil {
		return
	}
	defer e.leave(a)
	o := &op{Engine: e, entry: a, client: e.life}
	err = o.attend()
	if err != nil && e.life.Err() == nil {
		o.log().WithError(err).Warn("Background work failed; it is tried again")
	}
	o.note(err)
	o.finish()
}

// attend is the recovery after a start, the retry of what failed, and what a
// deadline demands: one function, because a crash makes them the same.
func (o *op) attend() error {
	switch {
	case o.rec == nil || o.rec.State == record.Spent:
		return nil
	case o.retire && o.rec.State != record.Releasing:
		o.log().Info("Releasing: --owners does not admit the owner any more (--retire-owners)")
		return o.giveBack()
	case o.expired():
		o.log().Info("Releasing: the hand-out was not confirmed in time")
		err := o.letGo()
		if o.rec == nil || !o.expired() { // else it is tried again, and counted then
			o.count(func(c *Counters) { c.Expired++ })
		}
		return err
	}
	switch o.rec.State {
	case record.Releasing:
		return o.giveBack()
	case record.Cooling:
		if time.Now().Before(o.rec.ReleaseAt) {
			return nil
		}
		return o.giveBack()
	case record.Adding:
		return o.heal()
	default:
		return o.recheck()
	}
}

// recheck verifies a held attachment once a start, when a duplicate has cast
// doubt on it, or when it could not be asked about, and heals it.
func (o *op) recheck() error {
	if o.isChecked() && o.failures == 0 {
		return o.tidy()
	}
	stands, err := o.stands()
	if err == nil && !stands {
		err = o.heal()
	}
	if err != nil {
		return err
	}
	o.setChecked()
	return o.tidy()
}

// tidy runs the DEL that an earlier ADD under another ID still needs. One under
// the same ID waits for the release: it would free what is held.
func (o *op) tidy() error {
	if o.rec.State != record.Held {
		return nil
	}
	live := o.lastContext()
	var kept []call.Context
	var errs []error
	for _, c := range o.rec.Contexts {
		if c.ContainerID == live.ContainerID || time.Now().Before(c.SettlesAt) {
			kept = append(kept, c)
			continue
		}
		if err := o.begin(); err != nil {
			return err
		}
		if err := o.plugin.Del(context.Background(), o.call(c)); err != nil {
			kept, errs = append(kept, c), append(errs, err)
		}
	}
	if len(kept) == len(o.rec.Contexts) {
		return errors.Join(errs...)
	}
	r := o.rec.Clone()
	r.Contexts = kept
	return errors.Join(append(errs, o.write(r))...)
}

// expired tells whether a hand-out was not confirmed in time.
func (o *op) expired() bool {
	claimed := o.rec.State == record.Held || o.rec.State == record.Adding && len(o.rec.Claims) > 0
	return claimed && o.rec.Expiration != nil && !time.Now().Before(o.rec.Expiration.Deadline)
}

// arm sets the timer for what is due next.
func (o *op) arm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	due, ok := o.due()
	if !ok || o.stopping {
		return
	}
	a, e := o.entry, o.Engine
	o.timer = time.AfterFunc(time.Until(due), func() { e.errands.add(a) })
}

// due says when the attachment needs attention, if it ever does.
func (o *op) due() (time.Time, bool) {
	if o.rec == nil {
		return time.Time{}, false
	}
	var times []time.Time
	if o.failures > 0 {
		times = append(times, o.retryAt)
	}
	if o.rec.Expiration != nil && !(o.failures > 0 && o.expired()) {
		times = append(times, o.rec.Expiration.Deadline)
	}
	switch {
	case o.failures > 0:
	case o.rec.State == record.Adding && !o.idle, o.rec.State == record.Releasing:
		times = append(times, o.settlesAt())
	case o.rec.State == record.Cooling:
		times = append(times, o.rec.ReleaseAt)
	case o.rec.State == record.Held:
		for _, c := range o.rec.Contexts {
			if c.ContainerID != o.lastContext().ContainerID {
				times = append(times, c.SettlesAt)
			}
		}
	}
	if len(times) == 0 {
		return time.Time{}, false
	}
	return slices.MinFunc(times, time.Time.Compare), true
}

// backoff is the wait after so many failures in a row.
func backoff(failures int) time.Duration {
	d := longestRetry
	if failures < 10 {
		d = min(d, firstRetry<<(failures-1))
	}
	return d + rand.N(d/4)
}

// errands is the list of attachments that need attention, each at most once.
type errands struct {
	mu     sync.Mutex
	more   sync.Cond
	list   []*entry
	listed map[*entry]bool
	closed bool
}

func newErrands() *errands {
	q := &errands{listed: map[*entry]bool{}}
	q.more.L = &q.mu
	return q
}

// add puts an attachment on the list.
func (q *errands) add(a *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.listed[a] {
		return
	}
	q.listed[a] = true
	q.list = append(q.list, a)
	q.more.Signal()
}

// next takes the first one off the list, waiting for one; nil after close.
func (q *errands) next() *entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && !q.closed {
		q.more.Wait()
	}
	if q.closed {
		return nil
	}
	a := q.list[0]
	q.list = q.list[1:]
	delete(q.listed, a)
	return a
}

// close ends every next.
func (q *errands) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.more.Broadcast()
}
