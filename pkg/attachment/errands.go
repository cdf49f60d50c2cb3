package attachment

import "sync"

// errands is the list of attachments that need attention, each at most once.
type errands struct {
	mu     sync.Mutex
	more   sync.Cond
	list   []*entry
	listed map[*entry]bool
	closed bool
}

func newErrands() *errands {
	q := &errands{listed: map[*entry]bool{}}
	q.more.L = &q.mu
	return q
}

// add puts an attachment on the list.
func (q *errands) add(a *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.listed[a] {
		return
	}
	q.listed[a] = true
	q.list = append(q.list, a)
	q.more.Signal()
}

// next takes the first one off the list, waiting for one; nil after close.
func (q *errands) next() *entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && !q.closed {
		q.more.Wait()
	}
	if q.closed {
		return nil
	}
	a := q.list[0]
	q.list = q.list[1:]
	delete(q.listed, a)
	return a
}

// len is how many are on the list.
func (q *errands) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list)
}

// close ends every next.
func (q *errands) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.more.Broadcast()
}
