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
	run func() T
	// unknown is the result before the first one, and while a run takes longer than stuckAfter.
	unknown    T
	stuckAfter time.Duration

	mu    sync.Mutex
	began time.Time     // start of the run in progress; zero without one
	ended chan struct{} // closed at the end of the last run
	last  T
}

func newProbe[T any](r *Reporter, stuckAfter time.Duration, unknown T, run func() T) *probe[T] {
	return &probe[T]{reporter: r, run: run, unknown: unknown, stuckAfter: stuckAfter, last: unknown}
}

// start begins a run in the background unless one is in progress. It returns a channel that is closed at its end.
func (p *probe[T]) start() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.began.IsZero() {
		return p.ended
	}
	ended := make(chan struct{})
	if !p.reporter.begin(func() {
		result := p.run()
		p.mu.Lock()
		p.last, p.began = result, time.Time{}
		p.mu.Unlock()
		close(ended)
		p.reporter.change()
	}) {
		close(ended)
		return ended
	}
	p.began, p.ended = time.Now(), ended
	return ended
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
	case <-p.start():
	case <-ctx.Done():
	}
	return p.result()
}
