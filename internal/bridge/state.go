package bridge

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// firstBatch is how many slots are acquired before the first publication that follows; each batch is
// twice as large as the one before. So 100 slots are 5 writes.
const firstBatch = 4

// smallExcessDelays is how many release delays a small excess waits for a larger one, or for pods that
// need its slots.
const smallExcessDelays = 5

// patience is how long the first publication waits for the list of pods, or while all acquisitions
// fail.
const patience = 30 * time.Second

// busyPatience is how long it waits for a busy sidecar, whose plugin may have the addresses: a stop of
// the sidecar takes up to 125 s.
const busyPatience = 3 * time.Minute

// burst is how long after an acquisition the next one belongs to the same burst of pods.
const burst = 10 * time.Second

// state is the state of the bridge that no observation shows. It is lost with the process; the delays
// start again then.
type state struct {
	// delay is how long slots must be in excess to be released, drainDelay how long a suspended address
	// must then be unused.
	delay, drainDelay time.Duration
	excess            excessWindow
	// nodeUID identifies the CiliumNode of unusedSince.
	nodeUID types.UID
	// unusedSince is when a suspended address was first observed unused by an agent that has answered
	// the ping.
	unusedSince map[netip.Addr]time.Time
	// unanswered is since when the agent has not answered the handshake of an address, unreported since
	// when it has not reported that a pod uses it.
	unanswered, unreported map[netip.Addr]time.Time
	// refusals are the refused requests by kind; an acquisition has anyAddress.
	refusals map[planner.Kind]refusals
	// acquireFailed reports whether an acquisition of the last batch failed, for any reason.
	acquireFailed bool
	pods          sampledPods
	// observed is when a CiliumNode was first observed.
	observed time.Time
	// headroom is used if the pods of the node are unknown.
	headroom headroom
	// missingSince is when slots were first observed missing; zero when the last one is published.
	missingSince time.Time
	// batch is the number of slots in the next batch, acquired the time of the last acquisition.
	batch    int
	acquired time.Time
}

func newState(delay time.Duration) *state {
	return &state{
		delay: delay, drainDelay: delay / 2, batch: firstBatch, unusedSince: map[netip.Addr]time.Time{},
		unanswered: map[netip.Addr]time.Time{}, unreported: map[netip.Addr]time.Time{},
		refusals: map[planner.Kind]refusals{planner.Acquire: newRefusals(), planner.Restore: newRefusals(), planner.Release: newRefusals()},
	}
}

// anyAddress is the address of an acquisition.
var anyAddress netip.Addr

// shortage returns the refusal of acquisitions, nil for none.
func (s *state) shortage() *refusal { return s.refusals[planner.Acquire].of[anyAddress] }

// repeatRequests ends the delay of each refused request, which is then repeated.
func (s *state) repeatRequests() {
	for _, r := range s.refusals {
		for _, last := range r.of {
			last.until = time.Now()
		}
	}
}

// planned ends the shortage if a plan that may acquire does not, and starts with small batches again
// when nothing was acquired for a while.
func (s *state) planned(plan planner.Plan) {
	if len(plan.Acquire) > 0 {
		return
	}
	if !s.shortage().active() {
		s.refusals[planner.Acquire].end(anyAddress)
		s.acquireFailed = false
	}
	if !publishes(plan.Pool) {
		s.missingSince = time.Time{}
	}
	if time.Since(s.acquired) > burst {
		s.batch = firstBatch
	}
}

// acquiredBatch records that slots were acquired, and whether a request failed; without a failure the next
// batch may be twice as large.
func (s *state) acquiredBatch(slots int, failed bool) {
	if s.acquireFailed = failed; slots == 0 {
		return
	}
	s.acquired = time.Now()
	if slots >= s.batch {
		s.batch *= 2
	}
}

// observePods adds the pods of the node to an observation.
func (s *state) observePods(o *planner.Observed, pods nodePods) {
	o.Pods, o.PodIPs = s.pods.observe(pods.count), pods.ips
	o.PodsPending = pods.pending && time.Since(s.observed) < patience
	s.observeAgent(*o)
}

// remembered returns what the plan of an observation needs of the state. settings are the ones that the
// plan will have.
func (s *state) remembered(o planner.Observed, settings planner.Settings) planner.Remembered {
	s.forget(o)
	r := planner.Remembered{
		Drained: map[netip.Addr]bool{}, Refused: s.refusals[planner.Restore].active(), ReleaseFailed: s.refusals[planner.Release].active(),
		// A batch has at least as many slots as are acquired ahead for one more pod.
		Exhausted: s.shortage().active(), Batch: max(s.batch, settings.MaxAboveWatermark+1),
	}
	if s.acquireFailed {
		r.Batch = 1 // one request shows whether the failure lasts
	}
	if b := s.shortage(); b != nil {
		r.Depleted = b.reason == reasonPoolExhausted || !b.failed.IsZero() && time.Since(b.failed) >= patience ||
			time.Since(b.since) >= busyPatience
	}
	for ip, since := range s.unusedSince {
		r.Drained[ip] = time.Since(since) >= s.drainDelay
	}
	if o.Pods == 0 {
		r.Headroom = s.headroom.observe(o, r, settings, s.delay)
	}
	counts := planner.Count(o, r, settings)
	if counts.Missing > 0 && s.missingSince.IsZero() { // acquired slots count until they are published
		s.missingSince = time.Now()
	}
	s.excess.observe(counts.Excess)
	r.Excess = s.releasable(settings)
	return r
}

// releasable returns how many slots have been in excess for the release delay. A release costs the
// same writes for one slot as for many, so a number below half of the watermark's waits for
// smallExcessDelays.
func (s *state) releasable(settings planner.Settings) int {
	if n := s.excess.lasting(s.delay); n >= settings.MaxAboveWatermark/2 {
		return n
	}
	return s.excess.lasting(smallExcessDelays * s.delay)
}

// forget removes the refusals of addresses that no longer exist.
func (s *state) forget(o planner.Observed) {
	known := map[netip.Addr]bool{}
	for _, slot := range o.Slots {
		for _, ip := range slot.Addresses {
			known[ip] = true
		}
	}
	s.refusals[planner.Release].forget(func(ip netip.Addr) bool { return known[ip] })
	s.refusals[planner.Restore].forget(func(ip netip.Addr) bool {
		_, published := o.Pool[ip]
		_, used := o.Used[ip]
		return published || used || known[ip]
	})
}

// observe updates the state from a CiliumNode that is not older than the one before: an older one would
// start the drain of an address too early.
func (s *state) observe(uid types.UID, o planner.Observed) {
	if s.observed.IsZero() {
		s.observed = time.Now()
	}
	if uid != s.nodeUID {
		s.nodeUID = uid
		s.resetDrain()
	}
	pinged := o.Handshakes[planner.Ping] == planner.DoNotRelease
	draining := func(ip netip.Addr) bool {
		_, used := o.Used[ip]
		return pinged && !used && o.Pool[ip].Suspended()
	}
	update(s.unusedSince, o.Pool, draining)
}

// resetDrain starts every drain, and each wait for the agent, again: while the API server was
// unavailable, the agent could not write which addresses it uses.
func (s *state) resetDrain() {
	clear(s.unusedSince)
	clear(s.unanswered)
	clear(s.unreported)
}

// untilNextExpiry returns the time until the next delay ends, or limit if that is shorter.
func (s *state) untilNextExpiry(limit time.Duration) time.Duration {
	soonest := limit
	consider := func(at time.Time) {
		if d := time.Until(at); d > 0 {
			soonest = min(soonest, d)
		}
	}
	if b := s.shortage(); b != nil {
		consider(b.failed.Add(patience))
		consider(b.since.Add(busyPatience))
	}
	consider(s.observed.Add(patience))
	for _, r := range s.refusals {
		for _, last := range r.of {
			consider(last.until)
		}
	}
	for _, since := range s.unusedSince {
		consider(since.Add(s.drainDelay))
	}
	for _, e := range s.excess {
		consider(e.since.Add(s.delay))
		consider(e.since.Add(smallExcessDelays * s.delay))
	}
	consider(s.pods.next)
	consider(s.headroom.until)
	return soonest
}
