package attachment

import (
	"cmp"
	"iter"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// listChunk is how many attachments are copied under one lock.
const listChunk = 64

// All yields every attachment, sorted by pool and owner. Few of them are copied at a
// time, so that neither memory nor a wait for the lock grows with their number. Each is
// as it is when it is yielded: one that is removed meanwhile is left out, and so is one
// that is added.
func (e *Engine) All() iter.Seq[Attachment] {
	return func(yield func(Attachment) bool) {
		views := make([]Attachment, 0, listChunk)
		for part := range slices.Chunk(e.sorted(), listChunk) {
			views = e.appendViews(views[:0], part)
			for _, v := range views {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// sorted returns the entries that are listed, by pool and owner.
func (e *Engine) sorted() []*entry {
	e.mu.Lock()
	all := make([]*entry, 0, len(e.byOwner))
	for _, a := range e.byOwner {
		if a.listed() {
			all = append(all, a)
		}
	}
	e.mu.Unlock()
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(a.owner, b.owner))
	})
	return all
}

// appendViews appends the attachments that the entries' owners have now.
func (e *Engine) appendViews(to []Attachment, entries []*entry) []Attachment {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range entries {
		if now, ok := e.byOwner[a.key]; ok && now.listed() {
			to = append(to, now.view())
		}
	}
	return to
}

// Lookup returns an owner's attachment in a pool, if there is one.
func (e *Engine) Lookup(pool, owner string) (Attachment, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, ok := e.byOwner[key{pool, owner}]
	if !ok || !a.listed() {
		return Attachment{}, false
	}
	return a.view(), true
}

// listed reports whether the entry is an attachment; Engine.mu is held.
func (a *entry) listed() bool { return a.rec != nil && a.rec.State != record.Tombstone }

// view returns what is known of the entry; Engine.mu is held. The record is shared: a
// change needs a clone of it.
func (a *entry) view() Attachment {
	return Attachment{
		Record: *a.rec, Verified: a.verified, LastUsed: a.lastUsed,
		Lost: a.lost, LastError: a.lastErr,
	}
}
