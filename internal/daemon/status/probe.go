package status

import (
	"context"
	"sync"
	"time"
)

// probe is a check that may be slow or hang, such as a plugin call or a write to a disk, with its last
// result. At most one run is in progress, in the background. Its methods may be called concurrently.
type probe[T any] struct {
	reporter *Reporter
	// run performs the check. It may take any time.
	run func() (result T, good bool)
	// unknown is the result before the first one, and while a run takes longer than stuckAfter.
	unknown    T
	stuckAfter time.Duration

	mu     sync.Mutex
	began  time.Time     // start of the run in progress; zero without one
	ended  chan struct{} // closed at the end of the last run
	failed time.Time     // last call of fail
	last   T
	good   bool
}

func newProbe[T any](r *Reporter, stuckAfter time.Duration, unknown T, run func() (T, bool)) *probe[T] {
	return &probe[T]{reporter: r, run: run, unknown: unknown, stuckAfter: stuckAfter, last: unknown}
}

// start begins a run in the background unless one is in progress or, without all, the last result is good. It returns a
// channel that is closed at the end of the run.
func (p *probe[T]) start(all bool) (ended <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.began.IsZero() || p.good && !all {
		return p.ended
	}
	begun := make(chan struct{})
	if !p.reporter.begin(func() {
		result, good := p.run()
		p.end(result, good)
		p.reporter.change()
	}) {
		close(begun)
		return begun
	}
	p.began, p.ended = time.Now(), begun
	return p.ended
}

// end sets the result of a run, unless fail was called since it began.
func (p *probe[T]) end(result T, good bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.After(p.failed) {
		p.last, p.good = result, good
	}
	p.began = time.Time{}
	close(p.ended)
}

// fail changes the last result, because another operation has found that it no longer holds. It counts until the end of
// a run that begins later.
func (p *probe[T]) fail(change func(*T)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.last)
	p.good, p.failed = false, time.Now()
}

// result returns the last result.
func (p *probe[T]) result() T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.began.IsZero() && time.Since(p.began) >= p.stuckAfter {
		return p.unknown
	}
	return p.last
}

// fresh begins a run unless one is in progress, waits for its end, at most until ctx ends, and returns the last result.
func (p *probe[T]) fresh(ctx context.Context) T {
	select {
	case <-p.start(true):
	case <-ctx.Done():
	}
	return p.result()
}
