package bridge

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// state is what the bridge knows besides what it observes. It is lost with the process, at the cost of
// delays that start again.
type state struct {
	// delay is how long a cordoned address must be unused to be drained.
	delay time.Duration
	// nodeUID identifies the CiliumNode of unusedSince.
	nodeUID types.UID
	// unusedSince is when a cordoned address was first observed unused by an agent that has answered
	// the probe.
	unusedSince map[netip.Addr]time.Time
	// restoreBackoffs are those of the addresses that the sidecar has refused to restore.
	restoreBackoffs map[netip.Addr]*backoff
	// acquireBackoff is set from a failed acquisition to the next success.
	acquireBackoff *backoff
}

func newState(delay time.Duration) *state {
	return &state{delay: delay, unusedSince: map[netip.Addr]time.Time{}, restoreBackoffs: map[netip.Addr]*backoff{}}
}

// acquireFailed records that the plugin has no address left.
func (s *state) acquireFailed(cause error) {
	if s.acquireBackoff == nil {
		s.acquireBackoff = newBackoff()
	}
	s.acquireBackoff.extend(cause)
}

// restoreRefused records that an address was not restored.
func (s *state) restoreRefused(ip netip.Addr, cause error) {
	if s.restoreBackoffs[ip] == nil {
		s.restoreBackoffs[ip] = newBackoff()
	}
	s.restoreBackoffs[ip].extend(cause)
}

// expireBackoffs ends the delay of each refused request, which is then repeated.
func (s *state) expireBackoffs() {
	if s.acquireBackoff != nil {
		s.acquireBackoff.until = time.Now()
	}
	for _, b := range s.restoreBackoffs {
		b.until = time.Now()
	}
}

// planned ends the shortage if a plan that may acquire does not.
func (s *state) planned(v planner.View, plan []planner.Action) {
	if !v.Exhausted && !slices.ContainsFunc(plan, func(a planner.Action) bool { return a.Kind == planner.Acquire }) {
		s.acquireBackoff = nil
	}
}

// addTo adds the state to a view.
func (s *state) addTo(v *planner.View) {
	v.Exhausted = s.acquireBackoff.active()
	v.Refused, v.Drained = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for ip, b := range s.restoreBackoffs {
		v.Refused[ip] = b.active()
	}
	for ip, since := range s.unusedSince {
		v.Drained[ip] = time.Since(since) >= s.delay
	}
}

// observe updates the state from a CiliumNode that was just read. One from the informer's cache may be
// older, and would start the drain of an address too early.
func (s *state) observe(uid types.UID, v planner.View) {
	if uid != s.nodeUID {
		s.nodeUID = uid
		s.resetDrain()
	}
	maps.DeleteFunc(s.restoreBackoffs, func(ip netip.Addr, _ *backoff) bool {
		_, published := v.Pool[ip]
		_, used := v.Used[ip]
		return !published && !used
	})
	probed := v.Handshakes[planner.Probe] == planner.DoNotRelease
	draining := func(ip netip.Addr) bool {
		_, used := v.Used[ip]
		return probed && !used && v.Pool[ip].Cordoned()
	}
	maps.DeleteFunc(s.unusedSince, func(ip netip.Addr, _ time.Time) bool { return !draining(ip) })
	for ip := range v.Pool {
		if _, started := s.unusedSince[ip]; !started && draining(ip) {
			s.unusedSince[ip] = time.Now()
		}
	}
}

// resetDrain starts every drain again: while the API server was unavailable, the agent could not write
// which addresses it uses.
func (s *state) resetDrain() { clear(s.unusedSince) }

// untilNextExpiry returns the time until the next backoff or drain ends, or limit if that is shorter.
func (s *state) untilNextExpiry(limit time.Duration) time.Duration {
	soonest := limit
	consider := func(at time.Time) {
		if d := time.Until(at); d > 0 {
			soonest = min(soonest, d)
		}
	}
	if s.acquireBackoff != nil {
		consider(s.acquireBackoff.until)
	}
	for _, b := range s.restoreBackoffs {
		consider(b.until)
	}
	for _, since := range s.unusedSince {
		consider(since.Add(s.delay))
	}
	return soonest
}
