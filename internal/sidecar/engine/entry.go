package engine

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// key identifies an attachment. A record is found by owner and pool, regardless of the
// present names of node and network (docs/design/how-it-works.md, Identity).
type key struct{ pool, owner string }

func (k key) String() string { return fmt.Sprintf("owner %q in pool %q", k.owner, k.pool) }

// entry is the state of one attachment in memory. Only the holder of its lock changes it, except
// refs and verifyDue. What others read, such as All, is changed under Engine.mu: id, rec, verified,
// lastUsed, lost, lastErr and failures.
type entry struct {
	key
	shared *pool
	// lock is held by the one operation that works on the attachment. Its capacity is 1.
	lock chan struct{}
	refs int
	id   string // container ID of generation 0; empty until it is needed; see idInUse

	rec *record.Record // nil without a record; its states are in docs/design/how-it-works.md, States
	// dirty: the last write failed, so the disk may have the old or the new record. Memory is
	// not used for responses before a write has succeeded.
	dirty    bool
	verified time.Time
	lastUsed time.Time
	lost     bool
	lastErr  string

	// releaseAs is the action of a release that is due: ActionRetire, or ActionCleanup if its client
	// got no response and the journal could not be written; empty for none.
	releaseAs Action
	// verifyDue: it must be verified, because the process started, because the plugin has returned its
	// address to another owner, or because the plugin's store lacked it.
	verifyDue atomic.Bool
	// waitsForOwner: it is lost, every DEL has succeeded, and the next request of its owner
	// acquires it again.
	waitsForOwner bool
	// failures counts consecutive failures; the work is retried at retryAt.
	failures int
	retryAt  time.Time
	timer    *time.Timer
}

// holder returns the attachment that has an address in a pool, and its container ID.
func (e *Engine) holder(pool string, ip netip.Addr) (k key, containerID string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.index.holder(pool, ip)
	if a == nil {
		return key{}, "", false
	}
	return a.key, a.idInUse(), true
}

// position returns the place of a key in Engine.sorted, and whether it is there; Engine.mu is held.
func (e *Engine) position(k key) (int, bool) {
	return slices.BinarySearchFunc(e.sorted, k, func(a *entry, k key) int { return a.compare(k) })
}

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.pool, o.pool), cmp.Compare(k.owner, o.owner))
}

// listed reports whether the entry is an attachment; Engine.mu is held.
func (a *entry) listed() bool { return a.rec != nil && a.rec.State != record.Tombstone }

// view returns the current view of the entry; Engine.mu is held.
func (a *entry) view() Attachment {
	return Attachment{
		Record: *a.rec, Verified: a.verified, LastUsed: a.lastUsed,
		Lost: a.lost, LastError: a.lastErr,
	}
}

// getOrCreate returns the entry of a key, with a reference that unref drops.
func (e *Engine) getOrCreate(k key) (*entry, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping {
		return nil, stoppingError(k)
	}
	e.wg.Add(1)
	a, ok := e.byOwner[k]
	if !ok {
		a = &entry{key: k, shared: e.pools[k.pool], lock: make(chan struct{}, 1)}
		e.byOwner[k] = a
		i, _ := e.position(k)
		e.sorted = slices.Insert(e.sorted, i, a)
	}
	a.refs++
	return a, nil
}

// unref drops a reference to an entry, and removes an entry that is not in use and has no record.
func (e *Engine) unref(a *entry) {
	defer e.wg.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	a.refs--
	if a.refs > 0 || a.rec != nil {
		return
	}
	delete(e.byOwner, a.key)
	i, _ := e.position(a.key)
	e.sorted = slices.Delete(e.sorted, i, i+1)
	delete(e.byID, a.id)
}

// idInUse returns the container ID of the last ADD. It is a later generation than id if a DEL may still
// act on the first one. It is empty before the first ADD.
func (a *entry) idInUse() string {
	if a.rec != nil {
		return a.rec.IDInUse()
	}
	return a.id
}

// releasing reports whether the attachment is being released; Engine.mu is held. One that is being adopted
// has addresses, but no record yet.
func (a *entry) releasing() bool { return a.rec != nil && a.rec.State == record.Releasing }

// olderThan reports whether the record of an entry is older; one without a record is the younger.
// Engine.mu is held.
func (a *entry) olderThan(other *entry) bool {
	if a.rec == nil || other.rec == nil {
		return a.rec != nil
	}
	return cmp.Or(a.rec.Created.Compare(other.rec.Created), cmp.Compare(a.id, other.id)) < 0
}
