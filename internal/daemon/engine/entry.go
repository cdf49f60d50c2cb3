package engine

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// entry is one attachment. Only the holder of its lock changes its state, under entries.mu, because
// others read it, such as All. refs and timer are guarded by entries.mu.
type entry struct {
	attachment.Key
	attachment.Status
	shared *pool
	// user is who created it.
	user User
	// lock is held by the one operation that works on the attachment. Its capacity is 1.
	lock chan struct{}
	refs int
	// doubted: the next operation verifies it (Status.VerifyDue). reserved are addresses in the index beside those of
	// its record. Both are guarded by entries.mu.
	doubted  bool
	reserved []netip.Addr
	lastUsed time.Time
	lastErr  string
	timer    *time.Timer
}

// IDInUse returns the container ID of the last ADD. Of a container interface that is its runtime's, also without a
// record, unless it has a lease that was acquired ahead.
func (a *entry) IDInUse() string {
	if a.Rec == nil {
		return cmp.Or(attachment.RuntimeID(a.Owner), a.ID)
	}
	return a.Rec.IDInUse()
}

// entries are the attachments. mu guards them, and what others read of each.
type entries struct {
	mu     sync.Mutex
	sorted []*entry // by pool and owner
	byID   map[string]*entry
	index  index
	owned  owned
	// returned are containers whose lease was acquired ahead, and that have it no more.
	returned map[attachment.Key]bool
	// records has the record of each key, for readers without mu.
	records sync.Map
}

func newEntry(k attachment.Key, p *pool, u User) *entry {
	return &entry{Key: k, shared: p, user: u, lock: make(chan struct{}, 1)}
}

// holder returns the attachment of an owner, of any if it is empty, that has an address in a pool; one that is being
// released only if no other one has it.
func (e *entries) holder(pool, owner string, ip netip.Addr) (k attachment.Key, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found *entry
	for _, h := range e.index[ip] {
		if h.Pool == pool && (owner == "" || h.Owner == owner) && (found == nil || found.releasing()) {
			found = h.entry
		}
	}
	if found == nil {
		return attachment.Key{}, false
	}
	return found.Key, true
}

// other returns the entry as another operation sees it; nothing for none. entries.mu is held.
func (a *entry) other() attachment.Other {
	if a == nil {
		return attachment.Other{}
	}
	return attachment.Other{Key: a.Key, ID: a.IDInUse(), Lost: a.Lost, Record: a.Rec}
}

// publish replaces the status of an entry, and its addresses in the index; entries.mu is held.
func (e *entries) publish(a *entry, s attachment.Status) {
	if a.Rec != s.Rec {
		e.index.remove(a, a.Rec.Reserved())
		e.index.remove(a, a.reserved)
		a.reserved = nil
		delete(a.shared.cooldown, a)
		if a.shared.warm[a] {
			delete(a.shared.warm, a)
			select {
			case a.shared.belowWarm <- struct{}{}:
			default: // there is one
			}
		}
		if s.Rec == nil {
			e.records.Delete(a.Key)
		}
	}
	switch {
	case a.Rec == nil && s.Rec != nil:
		delete(e.returned, a.Key)
	case s.Rec == nil && a.Rec != nil && a.Rec.Lent != nil:
		if len(e.returned) == maxReturned { // a forgotten one costs a call of the plugin
			clear(e.returned)
		}
		e.returned[a.Key] = true
	}
	if s.Rec != nil && a.Rec != s.Rec {
		e.index.add(a, s.Rec.Network, s.Rec.Reserved())
		e.records.Store(a.Key, s.Rec)
		if s.Rec.State == attachment.Cooldown {
			a.shared.cooldown[a] = true
		}
		if attachment.IsWarm(a.Owner) && s.Rec.State == attachment.Held {
			a.shared.warm[a] = true
		}
	}
	a.Status = s
}

// sibling returns another interface of a container that has an attachment in a network.
func (e *entries) sibling(k attachment.Key, network string) (other attachment.Key, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	prefix := attachment.ContainerOwner(attachment.RuntimeID(k.Owner), "")
	i, _ := e.position(attachment.Key{Pool: k.Pool, Owner: prefix})
	for _, a := range e.sorted[i:] {
		if a.Pool != k.Pool || !strings.HasPrefix(a.Owner, prefix) {
			break
		}
		if a.Key != k && a.listed() && a.Rec.Network == network {
			return a.Key, true
		}
	}
	return attachment.Key{}, false
}

// position returns the place of a key in entries.sorted, and whether it is there; entries.mu is held.
func (e *entries) position(k attachment.Key) (int, bool) {
	return slices.BinarySearchFunc(e.sorted, k, func(a *entry, k attachment.Key) int { return a.Key.Compare(k) })
}

// WhileUnused calls do unless an attachment or an operation has a container ID of the same owner as id, or its record names
// one, and reports whether it did. No operation gets such an ID before do returns.
func (e *entries) WhileUnused(id string, do func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	uses := func(a *entry) bool {
		return containerid.Same(a.ID, id) || a.Rec != nil && slices.ContainsFunc(a.Rec.Invocations, func(i call.Invocation) bool { return containerid.Same(i.ContainerID, id) })
	}
	if slices.ContainsFunc(e.sorted, uses) {
		return false
	}
	do()
	return true
}

// listed reports whether the entry is an attachment; entries.mu is held.
func (a *entry) listed() bool { return a.Rec != nil && a.Rec.State != attachment.Tombstone }

// view returns the current view of the entry; without a record it only identifies it. entries.mu or its lock is held.
func (a *entry) view() Attachment {
	if a.Rec == nil {
		return Attachment{Record: attachment.Record{Owner: a.Owner, Pool: a.Pool, ContainerID: a.IDInUse()}}
	}
	return Attachment{
		Record: *a.Rec, Verified: a.Verified, LastUsed: a.lastUsed,
		Lost: a.Lost, LastError: a.lastErr,
	}
}

// getOrCreate returns the entry of a key, with a reference that unref drops. The user may not create more
// than its share.
func (e *Engine) getOrCreate(k attachment.Key, u User) (*entry, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping {
		return nil, stoppingError(k)
	}
	return e.ref(k, u)
}

// ref is getOrCreate also for an operation in progress, which Stop waits for; entries.mu is held.
func (e *Engine) ref(k attachment.Key, u User) (*entry, error) {
	i, ok := e.position(k)
	if !ok {
		if err := e.owned.check(k, u); err != nil {
			return nil, err
		}
		a := newEntry(k, e.pools[k.Pool], u)
		e.owned.add(1, a)
		e.sorted = slices.Insert(e.sorted, i, a)
	}
	a := e.sorted[i]
	e.wg.Add(1)
	a.refs++
	return a, nil
}

// unref drops a reference to an entry, and removes an entry that is not in use and has no record.
func (e *Engine) unref(a *entry) {
	defer e.wg.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	a.refs--
	if a.refs > 0 || a.Rec != nil {
		return
	}
	i, _ := e.position(a.Key)
	e.sorted = slices.Delete(e.sorted, i, i+1)
	e.owned.add(-1, a)
	delete(e.byID, a.ID)
}

// releasing reports whether the attachment is being released; entries.mu is held. One that is being adopted
// has addresses, but no record yet.
func (a *entry) releasing() bool { return a.Rec != nil && a.Rec.State == attachment.Releasing }
