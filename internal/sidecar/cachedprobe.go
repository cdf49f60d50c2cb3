package sidecar

import (
	"context"
	"sync"
	"time"
)

// cachedProbe is a check that may be slow or hang, such as a plugin call or a write to a disk, with
// its last result. At most one run is in progress, in the background, so many callers cost no more
// than one, and a run that hangs blocks none of them. The first four fields are set before the first
// use. Its methods may be called concurrently.
type cachedProbe[T any] struct {
	// run performs the check. It may take any time.
	run func() T
	// good reports whether a result is reused for goodTTL before the check is run again.
	good func(T) bool
	// stuckAfter is how long a run may take before the previous result no longer counts.
	// Until then that one counts at any age: an hour without a caller is not
	// evidence against it.
	stuckAfter time.Duration
	// running counts the runs in progress, so that a caller can wait for their end.
	running *sync.WaitGroup

	mu       sync.Mutex
	done     chan struct{} // closed at the end of the run in progress; nil without one
	started  time.Time     // start of the run in progress
	last     T
	lastTime time.Time // time of last; zero before the first result
	rerun    bool      // expire was called since the start of the last run
	expired  bool      // expire was called since the start of the run that returned last
}

// probeState is the validity of a result.
type probeState int

const (
	// probeFresh: the result counts.
	probeFresh probeState = iota
	// probePending: there is no result yet, or none since expire, and the run is recent.
	probePending
	// probeStuck: the run in progress hangs, so no result counts.
	probeStuck
)

// A good result is reused for goodTTL, any other for badTTL, so that a recovery is noticed soon.
const (
	goodTTL = 5 * time.Second
	badTTL  = time.Second
)

// refresh starts a run in the background unless one is in progress or the last result is
// within its TTL.
func (p *cachedProbe[T]) refresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	ttl := badTTL
	if p.good(p.last) {
		ttl = goodTTL
	}
	if p.done != nil || !p.expired && !p.lastTime.IsZero() && time.Since(p.lastTime) < ttl {
		return
	}
	done := make(chan struct{})
	p.done, p.started, p.rerun = done, time.Now(), false
	p.running.Go(func() {
		defer close(done)
		result := p.run()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.last, p.lastTime, p.done, p.expired = result, time.Now(), nil, p.rerun
	})
}

// expire ends the validity of the last result: another operation has found that it no longer holds.
func (p *cachedProbe[T]) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expired, p.rerun = true, true
}

// result waits for the run in progress, at most until ctx ends, and returns the last
// result with its state. Only the result of a probeFresh state counts.
func (p *cachedProbe[T]) result(ctx context.Context) (T, probeState) {
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
	case p.done != nil && time.Since(p.started) >= p.stuckAfter:
		return p.last, probeStuck
	case p.lastTime.IsZero(), p.expired:
		return p.last, probePending
	default:
		return p.last, probeFresh
	}
}
