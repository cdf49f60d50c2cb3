package engine

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
)

// listPage is the number of attachments that are read under one lock.
const listPage = 64

// All yields every attachment, sorted by pool and owner. It copies a few at a time, so that
// neither memory nor the wait for the lock grows with their number. Each is current when it is
// copied.
func (e *Engine) All() iter.Seq[Attachment] {
	return func(yield func(Attachment) bool) {
		views := make([]Attachment, 0, listPage)
		for last, more := (attachment.Key{}), true; more; {
			views = views[:0]
			last, more = e.page(last, func(a *entry) { views = append(views, a.view()) })
			for _, v := range views {
				v.Range = e.plugin.Range(v.Pool, v.Addrs())
				if !yield(v) {
					return
				}
			}
		}
	}
}

// each calls f with every attachment, under entries.mu.
func (e *entries) each(f func(*entry)) {
	for last, more := (attachment.Key{}), true; more; {
		last, more = e.page(last, f)
	}
}

// page calls f with the attachments among the next entries after a key, under entries.mu. It
// returns the key of the last entry, and whether there may be more.
func (e *entries) page(after attachment.Key, f func(*entry)) (last attachment.Key, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	from, found := e.position(after)
	if found {
		from++
	}
	page := e.sorted[from:min(from+listPage, len(e.sorted))]
	for _, a := range page {
		last = a.Key
		if a.listed() {
			f(a)
		}
	}
	return last, len(page) == listPage
}

// Record returns an owner's record in a pool, if there is one. It waits for no lock, because a
// liveness probe needs it.
func (e *entries) Record(pool, owner string) (attachment.Record, bool) {
	r, ok := e.records.Load(attachment.Key{Pool: pool, Owner: owner})
	if !ok {
		return attachment.Record{}, false
	}
	return *r.(*attachment.Record), true //nolint:forcetypeassert // nothing else is stored
}

// Summary counts the attachments of one pool.
type Summary struct {
	// States counts attachments by state. A tombstone is not an attachment.
	States map[attachment.State]int
	// Addresses counts the claimed addresses by family, and Leased all that the plugin may hold, of each enabled family.
	Addresses, Leased map[attachment.Family]int
	// Lost counts attachments that the plugin does not hold any more.
	Lost int
	// Containers counts attachments of container interfaces; OldestContainer is when the oldest was added,
	// zero if there is none.
	Containers      int
	OldestContainer time.Time
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
			s = Summary{States: map[attachment.State]int{}, Addresses: map[attachment.Family]int{}, Leased: map[attachment.Family]int{}}
			for _, f := range e.requestedFamilies("") {
				s.Leased[f] = 0
			}
		}
		return s
	}
	for _, pool := range e.opts.Pools {
		all[pool] = of(pool)
	}
	e.each(func(a *entry) { all[a.Pool] = of(a.Pool).with(a) })
	return all
}

// with adds one attachment; entries.mu is held.
func (s Summary) with(a *entry) Summary {
	s.States[a.Rec.State]++
	for _, f := range a.Rec.Claims {
		if _, ok := a.Rec.Address(f); ok {
			s.Addresses[f]++
		}
	}
	for _, ip := range a.Rec.Addrs() {
		s.Leased[attachment.FamilyOf(ip)]++
	}
	if a.Lost {
		s.Lost++
	}
	if attachment.OfContainer(a.Owner) {
		s.Containers++
		s.OldestContainer = earlier(s.OldestContainer, a.Rec.Created)
	}
	if a.Rec.State == attachment.Releasing {
		s.PendingRelease = earlier(s.PendingRelease, a.Rec.Changed)
	}
	return s
}

// earlier returns the earlier of two moments; zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Add returns the sum of two summaries.
func (s Summary) Add(o Summary) Summary {
	return Summary{
		States: sum(s.States, o.States), Addresses: sum(s.Addresses, o.Addresses), Leased: sum(s.Leased, o.Leased),
		Lost: s.Lost + o.Lost, Containers: s.Containers + o.Containers,
		OldestContainer: earlier(s.OldestContainer, o.OldestContainer), PendingRelease: earlier(s.PendingRelease, o.PendingRelease),
	}
}

// sum returns the sums of the numbers in two maps.
func sum[K comparable](a, b map[K]int) map[K]int {
	all := map[K]int{}
	maps.Copy(all, a)
	for k, n := range b {
		all[k] += n
	}
	return all
}

// PluginUse is a plugin whose executable recorded attachments need for their CHECK and DEL.
type PluginUse struct {
	Pool string
	// Plugin is the plugin's type, Binary the recorded path of its executable.
	Plugin, Binary string
}

// Plugins returns the plugins of all recorded attachments, each once, sorted by pool, type and
// path.
func (e *Engine) Plugins() []PluginUse {
	all := map[PluginUse]bool{}
	e.each(func(a *entry) {
		for _, c := range a.Rec.Invocations {
			all[PluginUse{Pool: a.Pool, Plugin: c.Plugin, Binary: c.Binary}] = true
		}
	})
	return slices.SortedFunc(maps.Keys(all), func(a, b PluginUse) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Binary, b.Binary))
	})
}
