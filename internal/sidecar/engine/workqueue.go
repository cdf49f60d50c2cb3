package engine

import (
	"sync"
)

// workqueue holds the entries to reconcile, each at most once.
type workqueue struct {
	mu           sync.Mutex
	cond         sync.Cond
	items        []*entry
	queued       map[*entry]bool
	shuttingDown bool
}

func newWorkqueue() *workqueue {
	q := &workqueue{queued: map[*entry]bool{}}
	q.cond.L = &q.mu
	return q
}

// add queues an entry unless it is queued or the queue is shut down.
func (q *workqueue) add(a *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shuttingDown || q.queued[a] {
		return
	}
	q.queued[a] = true
	q.items = append(q.items, a)
	q.cond.Signal()
}

// get waits for an entry and removes it from the queue; nil after shutDown.
func (q *workqueue) get() *entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.shuttingDown {
		q.cond.Wait()
	}
	if q.shuttingDown {
		return nil
	}
	a := q.items[0]
	q.items = q.items[1:]
	delete(q.queued, a)
	return a
}

// len returns the number of queued entries.
func (q *workqueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// shutDown makes every get return nil.
func (q *workqueue) shutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shuttingDown = true
	q.cond.Broadcast()
}
