package status

import (
	"context"
	"sync"
	"time"
)

// probe is a check that may be slow or hang, such as a plugin call or a write to a disk, with its last
// result. At most one run is in progress, in the background. Its methods may be called concurrently.
type probe[T any] struct {
	// run performs the check. It may take any time.
	run func() (result T, good bool)
	// unknown is the result before the first one, and while a run takes longer than stuckAfter.
	unknown    T
	stuckAfter time.Duration
	// first is closed when there is a result.
	first chan struct{}

	mu          sync.Mutex
	began       time.Time     // start of the run in progress; zero without one
	ended       chan struct{} // closed at the end of the last run
	failed      time.Time     // last call of fail
	last        T
	known, good bool // there is a result; it is good
}

// start begins a run in the background unless one is in progress or, without all, the last result is good. running
// counts it until its end, when done is called.
func (p *probe[T]) start(all bool, running *sync.WaitGroup, done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.began.IsZero() || p.good && !all {
		return
	}
	began := time.Now()
	ended := make(chan struct{})
	p.began, p.ended = began, ended
	running.Go(func() {
		result, good := p.run()
		p.end(began, result, good)
		close(ended)
		done()
	})
}

// end sets the result of a run, unless fail was called since it began.
func (p *probe[T]) end(began time.Time, result T, good bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = time.Time{}
	if !began.After(p.failed) {
		return
	}
	if !p.known {
		close(p.first)
	}
	p.last, p.known, p.good = result, true, good
}

// fail changes the last result, because another operation has found that it no longer holds. It counts until the end of
// a run that begins later.
func (p *probe[T]) fail(change func(*T)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.last)
	p.good, p.failed = false, time.Now()
}

// result waits for a first result, at most until ctx ends, and returns the last one. It is pending while the first run is
// recent.
func (p *probe[T]) result(ctx context.Context) (last T, pending bool) {
	select {
	case <-p.first:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	stuck := !p.began.IsZero() && time.Since(p.began) >= p.stuckAfter
	if stuck || !p.known {
		return p.unknown, !stuck
	}
	return p.last, false
}

// fresh begins a run unless one is in progress, waits for its end, at most until ctx ends, and returns the last result.
func (p *probe[T]) fresh(ctx context.Context, running *sync.WaitGroup) T {
	p.start(true, running, func() {})
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	last, _ := p.result(ctx)
	return last
}
