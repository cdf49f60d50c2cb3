// Package cachedprobe runs a check that may be slow or hang, such as a plugin call or a
// write to a disk, in the background, and shares its last result among all callers.
package cachedprobe

import (
	"context"
	"sync"
	"time"
)

// Probe is one check with its last result. At most one run is in progress, so many
// callers cost no more than one, and a run that hangs blocks none of them. Its exported
// fields are set before its first use. Its methods may be called concurrently.
type Probe[T any] struct {
	// Run performs the check. It may take any time.
	Run func() T
	// TTL returns how long a result is reused before the check is run again.
	TTL func(T) time.Duration
	// StuckAfter is how long a run may take before the previous result no longer counts.
	// Until then that one counts at any age: an hour without a caller is not
	// evidence against it.
	StuckAfter time.Duration
	// Running counts the runs in progress, so that a caller can wait for their end.
	Running *sync.WaitGroup

	mu       sync.Mutex
	done     chan struct{} // closed at the end of the run in progress; nil without one
	started  time.Time     // start of the run in progress
	last     T
	lastTime time.Time // time of last; zero before the first result
	rerun    bool      // Expire was called since the start of the last run
	expired  bool      // Expire was called since the start of the run that returned last
}

// State is the validity of a result.
type State int

const (
	// Fresh: the result counts.
	Fresh State = iota
	// Pending: there is no result yet, or none since Expire, and the run is recent.
	Pending
	// Stuck: the run in progress hangs, so no result counts.
	Stuck
)

// Refresh starts a run in the background unless one is in progress or the last result is
// within its TTL.
func (p *Probe[T]) Refresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done != nil || !p.expired && !p.lastTime.IsZero() && time.Since(p.lastTime) < p.TTL(p.last) {
		return
	}
	done := make(chan struct{})
	p.done, p.started, p.rerun = done, time.Now(), false
	p.Running.Add(1)
	go func() {
		defer p.Running.Done()
		defer close(done)
		result := p.Run()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.last, p.lastTime, p.done, p.expired = result, time.Now(), nil, p.rerun
	}()
}

// Expire ends the validity of the last result: another operation has found that it no longer holds.
func (p *Probe[T]) Expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expired, p.rerun = true, true
}

// Result waits for the run in progress, at most until ctx ends, and returns the last
// result with its state. Only the result of a Fresh state counts.
func (p *Probe[T]) Result(ctx context.Context) (T, State) {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.done != nil && time.Since(p.started) >= p.StuckAfter:
		return p.last, Stuck
	case p.lastTime.IsZero(), p.expired:
		return p.last, Pending
	default:
		return p.last, Fresh
	}
}
