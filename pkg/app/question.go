package app

import (
	"context"
	"sync"
	"time"
)

// question is put to something that may take long or hang, such as a plugin or a
// disk, for many who want to know at once. One asks at a time, and all share
// its answer, so that asking often costs nothing and a hanging one holds nobody.
type question[A any] struct {
	// ask finds the answer. It may take as long as it takes.
	ask func() A
	// fresh is how long an answer counts before it is asked again.
	fresh func(A) time.Duration
	// running counts who asks in the background.
	running *sync.WaitGroup
	// patience is how long the last answer stands while the next is awaited, however
	// old it is: that nobody has asked for an hour says nothing against it.
	patience time.Duration

	mu     sync.Mutex
	asking chan struct{} // closed when the answer is there; nil while nobody asks
	began  time.Time     // when asking did
	last   A
	at     time.Time // when last came; zero if there is none
}

// refresh asks in the background, unless somebody does or the last answer counts.
func (q *question[A]) refresh() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.asking != nil || !q.at.IsZero() && time.Since(q.at) < q.fresh(q.last) {
		return
	}
	done := make(chan struct{})
	q.asking, q.began = done, time.Now()
	q.running.Add(1)
	go func() {
		defer q.running.Done()
		defer close(done)
		a := q.ask()
		q.mu.Lock()
		defer q.mu.Unlock()
		q.last, q.at, q.asking = a, time.Now(), nil
	}()
}

// standing is what an answer is worth.
type standing int

const (
	// answered: it counts.
	answered standing = iota
	// awaited: there has been none; the question is young.
	awaited
	// hanging: none counts any more, nor will there be one soon.
	hanging
)

// answer waits for what is being asked, at most until ctx ends; then the last
// answer counts, unless it has been asked for too long.
func (q *question[A]) answer(ctx context.Context) (A, standing) {
	q.mu.Lock()
	asking := q.asking
	q.mu.Unlock()
	if asking != nil {
		select {
		case <-asking:
		case <-ctx.Done():
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.asking != nil && time.Since(q.began) >= q.patience:
		return q.last, hanging
	case q.at.IsZero():
		return q.last, awaited
	default:
		return q.last, answered
	}
}
