package attachment

import (
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// Summary is what there is in one pool now.
type Summary struct {
	// States counts attachments by state; Tombstone ones are none.
	States map[record.State]int
	// Addresses counts the addresses that are handed out, by family.
	Addresses map[record.Family]int
	// Lost counts attachments that the plugin does not hold any more.
	Lost int
	// PendingRelease is since when the oldest releasing attachment is that; zero if there is none.
	PendingRelease time.Time
}

// Summaries counts the attachments of each pool: the configured ones, and those
// of which an earlier configuration left something.
func (e *Engine) Summaries() map[string]Summary {
	all := map[string]Summary{}
	of := func(pool string) Summary {
		s, ok := all[pool]
		if !ok {
			s = Summary{States: map[record.State]int{}, Addresses: map[record.Family]int{}}
		}
		return s
	}
	for _, pool := range e.Pools {
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

// with counts one more; Engine.mu is held.
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
	since := a.rec.Changed
	if a.rec.State == record.Releasing && (s.PendingRelease.IsZero() || since.Before(s.PendingRelease)) {
		s.PendingRelease = since
	}
	return s
}

// Add is what there is in two pools together.
func (s Summary) Add(o Summary) Summary {
	sum := Summary{States: map[record.State]int{}, Addresses: map[record.Family]int{}, Lost: s.Lost + o.Lost, PendingRelease: s.PendingRelease}
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
