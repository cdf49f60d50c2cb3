package attachment

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"sync"

	"golang.org/x/sync/semaphore"
)

// The plugin may return a reserved address to another owner, which releases it again
// (docs/design/how-it-works.md, Allocate). Until that DEL the plugin refuses the address to the owner
// for whom it is reserved. That owner must not get another one because of this, so it repeats its
// request while no other acquisition runs.

// repeatAlone reports whether the same addresses are requested again, alone: the plugin refused what
// the owner must get back, and another acquisition that ran at the same time may be the cause.
func (op *operation) repeatAlone(want *acquireRequest, requested []netip.Addr, err error) bool {
	wasAlone := want.alone
	want.alone = false
	_, duplicate := errors.AsType[*duplicateError](err)
	if wasAlone || op.nested || duplicate || !retryable(err) || op.engine.ctx.Err() != nil {
		return false
	}
	// A required address is not given up, but requested again later.
	want.alone = len(requested) > 0 && len(want.claimed) > 0 && len(want.required) == 0 && want.othersRan()
	return want.alone
}

// acquisitions counts the acquisitions that run, and lets one run alone.
type acquisitions struct {
	running *semaphore.Weighted // with weight 1 each, or with its whole size for one that is alone

	mu           sync.Mutex
	begun, ended int
}

// allAcquisitions is the weight of an acquisition that is alone.
const allAcquisitions = math.MaxInt64

func newAcquisitions() *acquisitions {
	return &acquisitions{running: semaphore.NewWeighted(allAcquisitions)}
}

// begin waits while an acquisition is alone.
func (a *acquisitions) begin() {
	_ = a.running.Acquire(context.Background(), 1) // nil: the context never ends
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun++
}

func (a *acquisitions) end() {
	a.mu.Lock()
	a.ended++
	a.mu.Unlock()
	a.running.Release(1)
}

// watch returns a function that reports whether an acquisition other than the caller's has run since.
func (a *acquisitions) watch() (othersRan func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	alone, begun := a.begun-a.ended == 1, a.begun
	return func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return !alone || a.begun != begun
	}
}

// alone runs a part of an acquisition that has begun when all others have ended, and before the next
// one begins.
func (a *acquisitions) alone(part func()) {
	a.running.Release(1)
	_ = a.running.Acquire(context.Background(), allAcquisitions) // nil: the context never ends
	part()
	a.running.Release(allAcquisitions - 1)
}
