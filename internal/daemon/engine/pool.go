package engine

import (
	"sync"

	"golang.org/x/sync/semaphore"
)

// pool is what the attachments of one pool share. Pools share none of it, so that a plugin that
// hangs delays its own pool only.
type pool struct {
	// processes are the slots of each class, one per plugin process. Background work has those of
	// background, the ones of ofOthers if there is more than one.
	processes  [ofOthers + 1]slots
	background slots
	workqueue  *workqueue
	// cooldown are the attachments in cooldown, warm the leases that were acquired ahead, and warmErr is why there are too
	// few of these; nil if there are enough, or they are being acquired. They are guarded by entries.mu.
	cooldown, warm map[*entry]bool
	warmErr        error
	// unreleased is the spare attachment whose release for another one failed last; nil for none. It is guarded by
	// entries.mu.
	unreleased *entry
	// belowWarm has a signal after one was taken or released.
	belowWarm chan struct{}
}

func newPool(maxProcesses int) *pool {
	p := &pool{processes: newSlots(maxProcesses), workqueue: newWorkqueue(), cooldown: map[*entry]bool{}, warm: map[*entry]bool{}, belowWarm: make(chan struct{}, 1)}
	p.background = p.processes[ofOthers]
	if maxProcesses == 1 { // half of one is none, and a request must not wait for background work
		p.background = slots{semaphore.NewWeighted(1)}
	}
	return p
}

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
