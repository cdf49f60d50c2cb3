package engine

import (
	"math/rand/v2"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
)

// Held attachments are looked up in the background, so that a lease that was deleted behind the sidecar
// is found without a request of its owner. Only what a lookup can read is checked: it reads a file for
// each address, while a CHECK runs a process.
const (
	// lookupInterval is the time between two rounds, plus up to a quarter.
	lookupInterval = 5 * time.Minute
	// lookupPause is the time between two pages of a round.
	lookupPause = time.Second
)

// lookUpRounds looks up the held attachments, a page at a time, until Stop.
func (e *Engine) lookUpRounds() {
	for e.wait(lookupInterval + rand.N(lookupInterval/4)) {
		for last, more := (attachment.Key{}), true; more; more = more && e.wait(lookupPause) {
			held := map[*entry]*attachment.Record{}
			last, more = e.page(last, func(a *entry) {
				if a.Rec.State == attachment.Held && !a.Lost && a.Failures == 0 {
					held[a] = a.Rec
				}
			})
			for a, r := range held {
				e.lookUp(a, r)
			}
		}
	}
}

// wait waits for a duration, and reports whether the engine runs.
func (e *Engine) wait(d time.Duration) bool {
	select {
	case <-e.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// lookUp causes a verification if the plugin's store lacks an address of a record.
func (e *Engine) lookUp(a *entry, r *attachment.Record) {
	inv := r.Invocations[len(r.Invocations)-1]
	if !inv.StoreProven {
		return
	}
	if held, err := e.plugin.Holds(inv, r.Addrs()); held || err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.Rec == r { // not changed meanwhile
		a.verifyDue.Store(true)
		a.shared.workqueue.add(a)
	}
}
