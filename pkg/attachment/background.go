package attachment

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// The waits between two tries of background work: the first, doubled with each
// failure, up to the longest, each with up to a quarter more so that a hundred
// attachments do not ask a sick plugin in step.
const (
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

// attend does what is due for an attachment.
func (e *Engine) attend(a *entry) {
	a, ours, err := e.approach(a.key)
	if err != nil {
		return
	}
	o := &op{Engine: e, entry: a, client: e.life}
	if !ours && o.await() != nil {
		return
	}
	defer e.leave(a)
	o.began = time.Now()
	was := o.identified()
	families := o.families()
	err = o.attend()
	if e.life.Err() == nil || err == nil {
		o.tell(was, families, err)
	}
	o.note(err)
	o.finish()
}

// attend is the recovery after a start, the retry of what failed, and what a
// deadline demands: one function, because a crash makes them the same.
func (o *op) attend() error {
	switch {
	case o.rec == nil:
		return nil
	case o.rec.State == record.Tombstone:
		if time.Now().Before(o.rec.LateDel.Until) {
			return nil
		}
		return o.forget()
	case o.retire:
		o.action = ActionRetire
		return o.giveBack()
	case o.expired():
		o.action = ActionExpire
		err := o.letGo()
		if o.rec == nil || !o.expired() { // else it is tried again, and counted then
			o.count(func(c *Counters) { c.Expired++ })
		}
		return err
	}
	switch o.rec.State {
	case record.Releasing:
		o.action = ActionCleanup
		return o.giveBack()
	case record.Cooldown:
		if time.Now().Before(o.rec.ReleaseAt) {
			return nil
		}
		o.action = ActionCleanup
		return o.giveBack()
	case record.Adding:
		return o.reacquire()
	default:
		return o.recheck()
	}
}

// recheck verifies a held attachment once a start, when a duplicate has cast
// doubt on it, or when it could not be asked about, and reacquires it.
func (o *op) recheck() error {
	if o.isChecked() && o.failures == 0 {
		return o.tidy()
	}
	stands, err := o.stands()
	if err == nil && !stands {
		err = o.reacquire()
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
	var kept []call.Invocation
	var errs []error
	for _, c := range o.rec.Invocations {
		if c.ContainerID == live.ContainerID || time.Now().Before(c.AddActsUntil) {
			kept = append(kept, c)
			continue
		}
		if err := o.begin(); err != nil {
			return err
		}
		if err := o.del(c); err != nil {
			kept, errs = append(kept, c), append(errs, err)
		}
	}
	if len(kept) == len(o.rec.Invocations) {
		return errors.Join(errs...)
	}
	r := o.rec.Clone()
	r.Invocations = kept
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
		times = append(times, o.addActsUntil())
	case o.rec.State == record.Cooldown:
		times = append(times, o.rec.ReleaseAt)
	case o.rec.State == record.Tombstone:
		times = append(times, o.rec.LateDel.Until)
	case o.rec.State == record.Held:
		for _, c := range o.rec.Invocations {
			if c.ContainerID != o.lastContext().ContainerID {
				times = append(times, c.AddActsUntil)
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
