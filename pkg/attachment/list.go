package attachment

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// listChunk is the number of attachments that are copied under one lock.
const listChunk = 64

// All yields every attachment, sorted by pool and owner. It copies a few at a time, so that
// neither memory nor the wait for the lock grows with their number. Each is current when it is
// yielded; attachments that are added or removed meanwhile are left out.
func (e *Engine) All() iter.Seq[Attachment] {
	return func(yield func(Attachment) bool) {
		views := make([]Attachment, 0, listChunk)
		for part := range slices.Chunk(e.sorted(), listChunk) {
			views = e.appendViews(views[:0], part)
			for _, v := range views {
				v.Range = e.plugin.Range(v.Pool, v.Addrs())
				if !yield(v) {
					return
				}
			}
		}
	}
}

// sorted returns the entries to list, by pool and owner.
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

// appendViews appends the current views of entries that still exist.
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

// view returns the current view of the entry; Engine.mu is held.
func (a *entry) view() Attachment {
	return Attachment{
		Record: *a.rec, Verified: a.verified, LastUsed: a.lastUsed,
		Lost: a.lost, LastError: a.lastErr,
	}
}

// Summary counts the attachments of one pool.
type Summary struct {
	// States counts attachments by state. A tombstone is not an attachment.
	States map[record.State]int
	// Addresses counts the claimed addresses by family.
	Addresses map[record.Family]int
	// Lost counts attachments that the plugin does not hold any more.
	Lost int
	// Excluded counts attachments that keep excluded addresses.
	Excluded int
	// PendingRelease is when the oldest releasing attachment entered that state; zero if there
	// is none.
	PendingRelease time.Time
}

// Summaries returns a Summary for each pool that is configured or has attachments.
func (e *Engine) Summaries() map[string]Summary {
	all := map[string]Summary{}
	of := func(pool string) Summary {
		s, ok := all[pool]
		if !ok {
			s = Summary{States: map[record.State]int{}, Addresses: map[record.Family]int{}}
		}
		return s
	}
	for _, pool := range e.opts.Pools {
		all[pool] = of(pool)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.byOwner {
		if a.rec != nil && a.rec.State != record.Tombstone {
			all[a.pool] = of(a.pool).with(a)
		}
	}
	return all
}

// with adds one attachment; Engine.mu is held.
func (s Summary) with(a *entry) Summary {
	s.States[a.rec.State]++
	for _, f := range a.rec.Claims {
		if _, ok := a.rec.Address(f); ok {
			s.Addresses[f]++
		}
	}
	if a.lost {
		s.Lost++
	}
	if keepsExcluded(a.owner) {
		s.Excluded++
	}
	since := a.rec.Changed
	if a.rec.State == record.Releasing && (s.PendingRelease.IsZero() || since.Before(s.PendingRelease)) {
		s.PendingRelease = since
	}
	return s
}

// Add returns the sum of two summaries.
func (s Summary) Add(o Summary) Summary {
	sum := Summary{States: map[record.State]int{}, Addresses: map[record.Family]int{}, Lost: s.Lost + o.Lost, Excluded: s.Excluded + o.Excluded, PendingRelease: s.PendingRelease}
	for _, part := range []Summary{s, o} {
		for state, n := range part.States {
			sum.States[state] += n
		}
		for family, n := range part.Addresses {
			sum.Addresses[family] += n
		}
	}
	if s.PendingRelease.IsZero() || !o.PendingRelease.IsZero() && o.PendingRelease.Before(s.PendingRelease) {
		sum.PendingRelease = o.PendingRelease
	}
	return sum
}

// PluginUse is a plugin whose executable recorded attachments need for their CHECK and DEL.
type PluginUse struct {
	// Pool is the attachments' pool.
	Pool string
	// Plugin is the plugin's type, Binary the recorded path of its executable.
	Plugin, Binary string
}

// Plugins returns the plugins of all recorded attachments, each once, sorted by pool, type and
// path.
func (e *Engine) Plugins() []PluginUse {
	all := map[PluginUse]bool{}
	e.mu.Lock()
	for _, a := range e.byOwner {
		if a.rec == nil || a.rec.State == record.Tombstone {
			continue
		}
		for _, c := range a.rec.Invocations {
			all[PluginUse{Pool: a.pool, Plugin: c.Plugin, Binary: c.Binary}] = true
		}
	}
	e.mu.Unlock()
	return slices.SortedFunc(maps.Keys(all), func(a, b PluginUse) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Binary, b.Binary))
	})
}
