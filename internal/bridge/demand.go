package bridge

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// excessWindow is how many slots have been in excess, and for how long. Each entry is a number that has
// not been undercut since a time; both increase. So an excess that ends before the release delay is
// over costs no write.
type excessWindow []excess

type excess struct {
	slots int
	since time.Time
}

func (w *excessWindow) observe(slots int) {
	since := time.Now()
	for n := len(*w); n > 0 && (*w)[n-1].slots >= slots; n-- {
		since = (*w)[n-1].since
		*w = (*w)[:n-1]
	}
	if slots > 0 {
		*w = append(*w, excess{slots, since})
	}
}

// lasting returns how many slots have been in excess for a time.
func (w excessWindow) lasting(d time.Duration) int {
	for _, e := range slices.Backward(w) {
		if time.Since(e.since) >= d {
			return e.slots
		}
	}
	return 0
}

// headroom is the number of free slots that are needed because none was free: pods may wait for an
// address, and without a watch their number is unknown. It doubles each time the agent has used all of
// them.
type headroom struct {
	slots int
	// until is the time at which the headroom ends, if the agent has not used new addresses.
	until time.Time
	// used are the addresses that the agent used when slots was determined.
	used map[netip.Addr]planner.Entry
}

// observe returns the headroom of an observation. It changes when the agent has written its used addresses, and
// ends after a time without such a write.
func (s *headroom) observe(o planner.Observed, r planner.Remembered, settings planner.Settings, end time.Duration) int {
	switch {
	case maps.Equal(s.used, o.Used):
		if !time.Now().Before(s.until) {
			s.slots = 0
		}
		return s.slots
	case len(o.Pool) == 0 || planner.Count(o, r, settings).Free > 0:
		s.slots = 0
	default:
		s.slots, s.until = max(settings.PreAllocate, 2*s.slots), time.Now().Add(end)
	}
	s.used = o.Used
	return s.slots
}

// sampledPods is a number of pods that changes at most once in coalesce: a reconciliation that takes less
// would write for each pod of a burst.
type sampledPods struct {
	pods    int
	changed time.Time
	// next is when a pending change counts; zero for none.
	next time.Time
}

func (s *sampledPods) observe(pods int) int {
	s.next = time.Time{}
	switch at := s.changed.Add(coalesce); {
	case pods == s.pods:
	case time.Now().Before(at):
		s.next = at
	default:
		s.pods, s.changed = pods, time.Now()
	}
	return s.pods
}
