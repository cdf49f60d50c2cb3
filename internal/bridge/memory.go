package bridge

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// firstBatch is how long slots are acquired in a reconciliation before those that are there are published. Each further
// batch takes twice as long as the one before, up to maxBatch: with a fast plugin all slots are one write, and
// with a slow one nobody waits for all.
const firstBatch, maxBatch = 250 * time.Millisecond, 10 * time.Second

// smallExcessDelays is how many release delays a small excess waits for a larger one, or for pods that
// need its slots.
const smallExcessDelays = 5

// patience is how long the first publication waits for the list of pods, or while all acquisitions
// fail.
const patience = 30 * time.Second

// busyPatience is how long it waits for a busy daemon, whose plugin may have the addresses: a stop of
// the daemon takes up to 125 s.
const busyPatience = 3 * time.Minute

// state is the state of the bridge that no observation shows. It is lost with the process; the delays
// start again then.
type state struct {
	// delay is how long slots must be in excess to be released. A suspended address must then be unused for half of it.
	delay  time.Duration
	excess excessWindow
	// nodeUID identifies the CiliumNode of unusedSince.
	nodeUID types.UID
	// unusedSince is when a suspended address was first observed unused by an agent that has answered
	// the ping.
	unusedSince map[netip.Addr]time.Time
	// asked are the addresses on which a mark was observed or written, until their handshake ends.
	asked map[netip.Addr]bool
	// unanswered is since when the agent has not answered the handshake of an address, unreported since
	// when it has not reported that a pod uses it.
	unanswered, unreported map[netip.Addr]time.Time
	// reminded is when a handshake was last taken for overlooked.
	reminded time.Time
	// refusals are the refused requests by kind; an acquisition has anyAddress.
	refusals map[planner.Kind]refusals
	// acquireFailed reports whether an acquisition of the last batch failed, for any reason.
	acquireFailed bool
	// observed is when a CiliumNode was first observed.
	observed time.Time
	// next is the earliest time that was not reached at the last observation; zero for none.
	next time.Time
	// headroom is used if the pods of the node are unknown.
	headroom headroom
	// rangeSize is the number of slots for which the node's own range has turned out to have addresses.
	// It holds while exactly that many are held; 0 if it is unknown.
	rangeSize int
	// missingSince is when slots were first observed missing; zero when the last one is published.
	missingSince time.Time
	// batch is how long slots are acquired for the next write.
	batch time.Duration
}

func newState(delay time.Duration) *state {
	return &state{
		delay: delay, unusedSince: map[netip.Addr]time.Time{}, asked: map[netip.Addr]bool{},
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

// planned ends the shortage if a plan that may acquire does not.
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
}

// acquiredBatch records that slots were acquired, and whether a request failed; without a failure the next
// batch may take twice as long.
func (s *state) acquiredBatch(slots int, failed bool) {
	if s.acquireFailed = failed; slots > 0 {
		s.batch = min(2*s.batch, maxBatch)
	}
}

// observePods adds the pods of the node to an observation, with their number at the start of the reconciliation.
func (s *state) observePods(o *planner.Observed, pods nodePods, count int) {
	o.Pods, o.PodIPs = count, pods.ips
	o.PodsPending = pods.pending && !s.reached(s.observed.Add(patience))
	s.observeAgent(*o)
}

// remembered returns what the plan of an observation needs of the state. settings are the ones that the
// plan will have.
func (s *state) remembered(o planner.Observed, settings planner.Settings) planner.Remembered {
	s.forget(o)
	r := planner.Remembered{
		Drained: map[netip.Addr]bool{}, Unasked: map[netip.Addr]bool{}, Refused: s.waiting(planner.Restore), ReleaseFailed: s.waiting(planner.Release),
		Exhausted: s.waiting(planner.Acquire)[anyAddress],
	}
	if s.acquireFailed {
		r.Batch = 1 // one request shows whether the failure lasts
	}
	for ip, since := range s.unanswered {
		if ip != planner.Ping && s.reached(since.Add(s.agentLimit())) && s.reached(s.reminded.Add(s.agentLimit())) {
			s.reminded, r.Overlooked = time.Now(), true
		}
	}
	if b := s.shortage(); b != nil {
		r.Depleted = b.reason == reasonPoolExhausted || !b.failed.IsZero() && s.reached(b.failed.Add(patience)) ||
			s.reached(b.since.Add(busyPatience))
	}
	for ip, since := range s.unusedSince {
		r.Drained[ip] = s.reached(since.Add(s.delay / 2))
	}
	if o.Pods == 0 {
		r.Headroom = s.observeHeadroom(o, r, settings)
	}
	for ip, handshake := range o.Handshakes {
		r.Unasked[ip] = handshake == planner.ReadyForRelease && !s.asked[ip]
	}
	s.learnRange(o, &r, settings)
	counts := planner.Count(o, r, settings)
	if counts.Missing > 0 && s.missingSince.IsZero() { // acquired slots count until they are published
		s.missingSince = time.Now()
	}
	s.excess.observe(counts.Excess)
	r.Excess = s.releasable(settings)
	return r
}

// learnRange ends the shortage of a range of the node's own that has no more addresses and enough for the
// node: nobody waits for an address, and none will come from another node.
func (s *state) learnRange(o planner.Observed, r *planner.Remembered, settings planner.Settings) {
	if settings.MaxPods == 0 {
		s.rangeSize = 0
		return
	}
	held := planner.Count(o, *r, settings).Retained
	if s.rangeSize != held {
		s.rangeSize = 0
	}
	if b := s.shortage(); b.active() && b.reason == reasonPoolExhausted {
		r.RangeSize = held
		if planner.Count(o, *r, settings).Missing == 0 {
			s.rangeSize, s.acquireFailed = held, false
			s.refusals[planner.Acquire].end(anyAddress)
		}
	}
	r.RangeSize = s.rangeSize
	r.Depleted = r.Depleted || s.rangeSize > 0
}

// releasable returns how many slots have been in excess for the release delay. A release costs the
// same writes for one slot as for many, so a number below half of the watermark's waits for
// smallExcessDelays.
func (s *state) releasable(settings planner.Settings) int {
	if n := s.lasting(s.delay); n >= settings.MaxAboveWatermark/2 {
		return n
	}
	return s.lasting(smallExcessDelays * s.delay)
}

// lasting returns how many slots have been in excess for a time.
func (s *state) lasting(d time.Duration) int {
	for _, e := range slices.Backward(s.excess) {
		if s.reached(e.since.Add(d)) {
			return e.slots
		}
	}
	return 0
}

// forget removes the refusals of addresses that no longer exist.
func (s *state) forget(o planner.Observed) {
	known := map[netip.Addr]bool{}
	for _, slot := range o.Slots {
		for _, ip := range slices.Concat(slot.Addresses, slot.Unclaimed) {
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
	s.next = time.Time{}
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
	maps.DeleteFunc(s.asked, func(ip netip.Addr, _ bool) bool { return o.Handshakes[ip] != planner.ReadyForRelease })
	for ip, handshake := range o.Handshakes {
		if handshake == planner.MarkedForRelease {
			s.asked[ip] = true
		}
	}
}

// ask records the marks of a write, which the agent may answer before the next observation.
func (s *state) ask(batch []planner.Action) {
	for _, a := range batch {
		if a.Kind == planner.MarkForRelease {
			for _, ip := range a.IPs {
				s.asked[ip] = true
			}
		}
	}
}

// resetDrain starts every drain, and each wait for the agent, again: while the API server was
// unavailable, the agent could not write which addresses it uses, and its etcd may have been restored.
func (s *state) resetDrain() {
	clear(s.asked)
	clear(s.unusedSince)
	clear(s.unanswered)
	clear(s.unreported)
}

// reached reports whether a time has come. Otherwise the state changes by then, without an event.
func (s *state) reached(at time.Time) bool {
	if !time.Now().Before(at) {
		return true
	}
	if s.next.IsZero() || at.Before(s.next) {
		s.next = at
	}
	return false
}

// excessWindow is a monotonic queue: entry i has the smallest excess since its time, so lasting is a
// sliding-window minimum. An excess that ends before the release delay has elapsed costs no write.
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

// observeHeadroom returns the headroom of an observation. It changes when the agent has written its used addresses, and
// ends after the release delay without such a write.
func (s *state) observeHeadroom(o planner.Observed, r planner.Remembered, settings planner.Settings) int {
	h := &s.headroom
	switch {
	case maps.Equal(h.used, o.Used):
	case len(o.Pool) == 0 || planner.Count(o, r, settings).Free > 0:
		h.slots = 0
	default:
		h.slots, h.until = max(settings.PreAllocate, 2*h.slots), time.Now().Add(s.delay)
	}
	if h.used = o.Used; s.reached(h.until) {
		h.slots = 0
	}
	return h.slots
}

// update keeps since when addresses meet a criterion.
func update[V any](since map[netip.Addr]time.Time, all map[netip.Addr]V, met func(ip netip.Addr) bool) {
	maps.DeleteFunc(since, func(ip netip.Addr, _ time.Time) bool { return !met(ip) })
	for ip := range all {
		if since[ip].IsZero() && met(ip) {
			since[ip] = time.Now()
		}
	}
}
