package bridge

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// memory is what the bridge knows besides what it sees. A new process begins
// without it: the worst of that is a wait that begins anew.
type memory struct {
	delay time.Duration
	// of is the CiliumNode that resting is of; resting says since when an address
	// on its way back has been seen unused by an agent that answers.
	of      types.UID
	resting map[netip.Addr]time.Time
	// refused are addresses that the sidecar would not restore.
	refused map[netip.Addr]*pause
	// exhausted is there since an acquisition failed and none has succeeded since.
	exhausted *pause
}

// pause is until when something is not tried again: longer each time.
type pause struct {
	next    wait.Backoff
	until   time.Time
	because error
}

func newMemory(delay time.Duration) *memory {
	return &memory{delay: delay, resting: map[netip.Addr]time.Time{}, refused: map[netip.Addr]*pause{}}
}

// untried is a pause that has not begun: from 5 s to 5 min, each up to twice as
// long so that nodes do not ask all at once.
func untried() *pause {
	return &pause{next: wait.Backoff{Duration: 5 * time.Second, Factor: 2, Jitter: 1, Steps: 7, Cap: 5 * time.Minute}}
}

func (p *pause) begin() { p.until = time.Now().Add(p.next.Step()) }

func (p *pause) lasts() bool { return p != nil && time.Now().Before(p.until) }

// exhaust notes that the plugin has no address.
func (m *memory) exhaust(because error) {
	if m.exhausted == nil {
		m.exhausted = untried()
	}
	m.exhausted.because = because
	m.exhausted.begin()
}

// planned takes note of what follows from a view: if nothing is to be acquired
// although it could be, nothing is missing any more.
func (m *memory) planned(v planner.View, plan []planner.Action) {
	if !v.Exhausted && !slices.ContainsFunc(plan, func(a planner.Action) bool { return a.Kind == planner.Acquire }) {
		m.exhausted = nil
	}
}

// refuse notes that an address was not restored.
func (m *memory) refuse(ip netip.Addr) {
	if m.refused[ip] == nil {
		m.refused[ip] = untried()
	}
	m.refused[ip].begin()
}

// complete adds to a view what is remembered.
func (m *memory) complete(v *planner.View) {
	v.Exhausted = m.exhausted.lasts()
	v.Refused, v.Rested = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for ip, p := range m.refused {
		v.Refused[ip] = p.lasts()
	}
	for ip, since := range m.resting {
		v.Rested[ip] = time.Since(since) >= m.delay
	}
}

// observe takes note of the CiliumNode as it is now, never as it was: a rest
// must not begin before its time.
func (m *memory) observe(uid types.UID, v planner.View) {
	if uid != m.of {
		m.of = uid
		m.doubt()
	}
	maps.DeleteFunc(m.refused, func(ip netip.Addr, _ *pause) bool {
		_, published := v.Pool[ip]
		_, used := v.Used[ip]
		return !published && !used
	})
	answered := v.Release[planner.Probe] == planner.DoNotRelease
	rests := func(ip netip.Addr) bool {
		_, used := v.Used[ip]
		return answered && !used && v.Pool[ip].Fenced()
	}
	maps.DeleteFunc(m.resting, func(ip netip.Addr, _ time.Time) bool { return !rests(ip) })
	for ip := range v.Pool {
		if _, begun := m.resting[ip]; !begun && rests(ip) {
			m.resting[ip] = time.Now()
		}
	}
}

// doubt forgets every rest: while the API server was away, the agent could not
// write what it uses.
func (m *memory) doubt() { clear(m.resting) }

// due is how long it takes at most until the memory says something else.
func (m *memory) due(atMost time.Duration) time.Duration {
	soonest := atMost
	consider := func(at time.Time) {
		if d := time.Until(at); d > 0 {
			soonest = min(soonest, d)
		}
	}
	if m.exhausted != nil {
		consider(m.exhausted.until)
	}
	for _, p := range m.refused {
		consider(p.until)
	}
	for _, since := range m.resting {
		consider(since.Add(m.delay))
	}
	return soonest
}
