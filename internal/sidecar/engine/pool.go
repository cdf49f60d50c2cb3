package engine

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// pool is what the attachments of one pool share. Pools share none of it, so that a plugin that
// hangs delays its own pool only.
type pool struct {
	// processes has one slot per plugin process. Background work has the slots of background, which
	// are the same ones if there is more than one.
	processes, background *semaphore.Weighted
	workqueue             *workqueue
	acquisitions          acquisitions
}

func newPool(maxProcesses int) *pool {
	p := &pool{processes: semaphore.NewWeighted(int64(maxProcesses)), workqueue: newWorkqueue()}
	p.background = p.processes
	if maxProcesses == 1 { // half of one is none, and a request must not wait for background work
		p.background = semaphore.NewWeighted(1)
	}
	return p
}

// acquisitions are those of a pool in progress, except those that are part of another one.
type acquisitions struct {
	mu      sync.Mutex
	begun   int
	running map[chan struct{}]bool // each is closed at its end
}

func (a *acquisitions) begin() (ended chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running == nil {
		a.running = map[chan struct{}]bool{}
	}
	ended = make(chan struct{})
	a.running[ended] = true
	a.begun++
	return ended
}

func (a *acquisitions) end(ended chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, ended)
	close(ended)
}

// watch returns a function that reports whether an acquisition other than the caller's has run since.
func (a *acquisitions) watch() (othersRan func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	alone, begun := len(a.running) == 1, a.begun
	return func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return !alone || a.begun != begun
	}
}

// await waits until the acquisitions that are in progress now have ended, or until ctx ends.
func (a *acquisitions) await(ctx context.Context) {
	a.mu.Lock()
	var running []chan struct{}
	for ended := range a.running {
		running = append(running, ended)
	}
	a.mu.Unlock()
	for _, ended := range running {
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// The plugin may return a reserved address to another owner, which releases it again
// (docs/design/how-it-works.md, Allocate). Until that DEL the plugin refuses the address to the owner
// for whom it is reserved. That owner must not get another one because of this, so it waits for the
// acquisitions in progress, and repeats its request.

// maxAwait bounds how long an acquisition waits for others in all.
const maxAwait = 10 * time.Second

// repeatAfterOthers reports whether the same addresses are requested again when the other
// acquisitions have ended: the plugin refused what the owner must get back, and one of them may be
// the cause.
func (op *operation) repeatAfterOthers(want *acquireRequest, requested []netip.Addr, err error) bool {
	_, duplicate := errors.AsType[*duplicateError](err)
	if op.nested || duplicate || !retryable(err) || op.engine.ctx.Err() != nil || want.repeated == maxRepeats || want.awaited >= maxAwait {
		return false
	}
	// A required address is not given up, but requested again later.
	want.await = len(requested) > 0 && len(want.claimed) > 0 && len(want.required) == 0 && want.othersRan()
	if want.await {
		want.repeated++
	}
	return want.await
}

// awaitOthers waits for the other acquisitions of the pool, without a plugin process. Meanwhile
// this one does not count as in progress: two may wait, and not for each other.
func (op *operation) awaitOthers(want *acquireRequest, ended chan struct{}) (began chan struct{}) {
	p := op.entry.shared
	p.acquisitions.end(ended)
	op.processes().Release(1)
	ctx, cancel := context.WithTimeout(op.callCtx(), maxAwait-want.awaited)
	defer cancel()
	defer context.AfterFunc(op.engine.ctx, cancel)()
	start := time.Now()
	p.acquisitions.await(ctx)
	want.await, want.awaited = false, want.awaited+time.Since(start)
	_ = op.processes().Acquire(context.Background(), 1) // nil; the attachment is not left halfway
	return p.acquisitions.begin()
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
