package planner

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/crdagent"
)

// The exploration has two slots, which two pods can use, beside those of the agent itself, which are
// always held, published and used. Slot n has the address of number n.
const (
	explored = 2
	pingBit  = explored // index of the ping in the handshakes
	ownBit   = 1 << explored
)

func exploredIP(i int) netip.Addr {
	if i == pingBit {
		return Ping
	}
	return ip(agentAddresses + i)
}

var handshakeStates = []Handshake{"", MarkedForRelease, ReadyForRelease, DoNotRelease, Released}

func handshakeState(h Handshake) uint8 { return uint8(slices.Index(handshakeStates, h)) }

// entry states of the pool.
const (
	absent uint8 = iota
	plain
	suspended
)

// written is the part of the CiliumNode that changes: entries of the pool and handshakes.
type written struct {
	pool       [explored]uint8
	handshakes [explored + 1]uint8
}

// world is one state of all components. Sets of addresses are bits.
type world struct {
	written
	// used is the agent's list at the API server; ownBit are its own addresses.
	used uint8
	held uint8
	// The agent: seen is the CiliumNode that it works with, current reports whether that is the one of the
	// API server. allocated is in its memory, endpoints on its disk.
	running, restored, current bool
	seen                       written
	allocated, endpoints       uint8
	// waiting is the number of pods without an address.
	waiting uint8
	// The bridge: the plan in progress, its next action, and whether no other client has written since
	// its snapshot. drained is its memory. cache is a CiliumNode of its watch that may be outdated.
	plan             uint16
	next             uint8
	valid            bool
	drained, skipped uint8
	asked            uint8
	cache            written
	cacheUsed        uint8
	cacheCurrent     bool
}

type explorer struct {
	settings Settings
	// deaf allows a drain to pass while the agent has not written its used addresses: the limit that
	// docs/design/bridge.md names.
	deaf bool
	// podsListed makes the bridge know the addresses of the pods.
	podsListed bool
	plans      []Plan
	planID     map[situation]uint16
	// idOf are the plans' numbers by their actions.
	idOf map[string]uint16
	// from has the state and the step before each state.
	from  map[world]origin
	queue []world
	fault string
}

type origin struct {
	before world
	step   string
}

func (s situation) observed() Observed {
	o := Observed{Pool: map[netip.Addr]Entry{}, Used: map[netip.Addr]Entry{}, Handshakes: map[netip.Addr]Handshake{}, Pods: s.pods}
	add := func(slot int, state uint8, used, held bool, user string) {
		ip := ip(slot)
		if state != absent {
			o.Pool[ip] = EntryOf(slot, state == suspended)
		}
		if used {
			o.Used[ip] = Entry{Owner: user, Resource: EntryOf(slot, false).Resource}
		}
		if held {
			o.Slots = append(o.Slots, Slot{Number: slot, Addresses: []netip.Addr{ip}, Held: true})
		}
	}
	for i := range agentAddresses {
		add(i, plain, s.used&ownBit != 0, true, "router")
	}
	for i := range explored {
		add(agentAddresses+i, s.pool[i], s.used>>i&1 != 0, s.held>>i&1 != 0, "default/pod")
	}
	if s.listed {
		o.PodIPs = map[netip.Addr]bool{}
	}
	for i := range explored {
		if s.podIPs>>i&1 != 0 {
			o.PodIPs[exploredIP(i)] = true
		}
	}
	for i, h := range s.handshakes {
		if h != 0 {
			o.Handshakes[exploredIP(i)] = handshakeStates[h]
		}
	}
	return o
}

// pods returns the number of pods, with and without an address.
func (w world) pods() int { return int(w.waiting) + bits.OnesCount8(w.endpoints) }

func (e *explorer) reach(before, after world, step string, args ...any) {
	if _, known := e.from[after]; !known {
		e.from[after] = origin{before, fmt.Sprintf(step, args...)}
		e.queue = append(e.queue, after)
	}
}

// violate records the first violation, which has the shortest trace.
func (e *explorer) violate(at world, step, what string) {
	if e.fault == "" {
		e.fault = strings.Join(append(e.trace(at), step, what), "\n")
	}
}

func (e *explorer) trace(w world) (steps []string) {
	for {
		o := e.from[w]
		if o.step == "" {
			slices.Reverse(steps)
			return steps
		}
		steps, w = append(steps, o.step), o.before
	}
}

// situation is what a plan depends on.
type situation struct {
	written
	used, held, drained uint8
	asked               uint8
	pods                int
	// podIPs are the addresses of the pods, if they are listed.
	podIPs uint8
	listed bool
	excess bool
	// ownRange reports whether the range is the node's own, which a bridge learns and may unlearn.
	ownRange bool
	// late reports whether the agent has not answered for long.
	late bool
}

// planOf returns the number of the plan of a situation, from 1; 0 if there is nothing to do.
func (e *explorer) planOf(s situation) uint16 {
	id, known := e.planID[s]
	if known {
		return id
	}
	o, r, settings := s.observed(), Remembered{Drained: map[netip.Addr]bool{}, Unasked: map[netip.Addr]bool{}}, e.settings
	if s.ownRange {
		settings.MaxPods = explored
	}
	for i := range explored {
		r.Drained[exploredIP(i)] = s.drained>>i&1 != 0
		r.Unasked[exploredIP(i)] = handshakeStates[s.handshakes[i]] == ReadyForRelease && s.asked>>i&1 == 0
	}
	r.Overlooked = s.late && slices.ContainsFunc(s.handshakes[:explored], func(h uint8) bool {
		return handshakeStates[h] == MarkedForRelease || handshakeStates[h] == Released
	})
	if s.excess {
		r.Excess = Count(o, r, settings).Excess
	}
	if p := New(o, r, settings); len(p.Actions()) > 0 {
		text := fmt.Sprint(p.Actions())
		if id = e.idOf[text]; id == 0 {
			e.plans = append(e.plans, p)
			id = uint16(len(e.plans))
			e.idOf[text] = id
		}
	}
	e.planID[s] = id
	return id
}

// makePlan makes the bridge plan, from its cache or from a fresh read. A plan that withdraws or releases is
// made from a fresh one.
func (e *explorer) makePlan(w world, fromCache, excess, ownRange, late bool) (world, bool) {
	s := situation{w.written, w.used, w.held, w.drained, w.asked, w.pods(), 0, e.podsListed, excess, ownRange, late}
	if e.podsListed {
		s.podIPs = w.endpoints
	}
	if fromCache {
		s.written, s.used = w.cache, w.cacheUsed
	}
	for i := range explored {
		if s.pool[i] != suspended || s.used>>i&1 != 0 || handshakeStates[s.handshakes[pingBit]] != DoNotRelease {
			s.drained &^= 1 << i // the drain is interrupted
		}
	}
	for i, h := range s.handshakes[:explored] {
		switch handshakeStates[h] {
		case MarkedForRelease:
			s.asked |= 1 << i
		case ReadyForRelease:
		default:
			s.asked &^= 1 << i
		}
	}
	w.drained, w.asked = s.drained, s.asked
	id := e.planOf(s)
	if id == 0 || fromCache && e.plans[id-1].Irreversible() {
		return w, false
	}
	w.plan, w.next, w.valid, w.skipped = id, 0, !fromCache || w.cacheCurrent, 0
	w.cacheCurrent = w.cacheCurrent || !fromCache
	return w.normal(), true
}

// planStep is one write, or one request to the daemon.
type planStep struct {
	actions []Action
	request bool
}

func planSteps(p Plan) (steps []planStep) {
	write := func(batch []Action) {
		if len(batch) > 0 {
			steps = append(steps, planStep{batch, false})
		}
	}
	request := func(batch []Action) {
		for _, a := range batch {
			steps = append(steps, planStep{[]Action{a}, true})
		}
	}
	write(p.Unping)
	write(p.Pool)
	write(p.Marks)
	request(p.Restore)
	request(p.Release)
	write(p.Released)
	request(p.Acquire)
	return steps
}

// execute makes the bridge execute the next step of its plan, with every outcome.
func (e *explorer) execute(w world) {
	all := planSteps(e.plans[w.plan-1])
	s := all[w.next]
	actions := slices.DeleteFunc(slices.Clone(s.actions), func(a Action) bool { return a.Kind != Acquire && w.skipped&e.bitsOf(a) != 0 })
	next := w
	if next.next++; int(next.next) == len(all) {
		next.plan, next.next, next.valid, next.skipped = 0, 0, false, 0
	}
	switch {
	case len(actions) == 0:
		e.reach(w, next, "bridge: skips %v", s.actions)
	case s.request:
		done := e.apply(w, next, actions)
		e.reach(w, done, "bridge: %v", actions[0])
		for before, what := range map[world]string{next: "fails", done: "executed, its response is lost"} {
			if before.plan != 0 {
				before.skipped |= e.bitsOf(actions[0])
			}
			e.reach(w, before, "bridge: %v: %s", actions[0], what)
		}
	case !w.valid:
		next.plan, next.next, next.valid, next.skipped = 0, 0, false, 0
		next.cache, next.cacheUsed, next.cacheCurrent = w.written, w.used, true // the next plan reads it
		e.reach(w, next, "bridge: conflict at %v", actions)
	default:
		e.reach(w, e.apply(w, next, actions), "bridge: writes %v", actions)
	}
}

// bitsOf returns the explored addresses of an action.
func (e *explorer) bitsOf(a Action) (set uint8) {
	for i := range explored + 1 {
		if slices.Contains(a.IPs, exploredIP(i)) || a.Kind == Acquire && a.Slot == agentAddresses+i {
			set |= 1 << i
		}
	}
	return set
}

// apply applies actions of one kind of target to a state.
func (e *explorer) apply(from, w world, actions []Action) world {
	for _, a := range actions {
		for i := range explored + 1 {
			if e.bitsOf(a)>>i&1 == 0 {
				continue
			}
			switch a.Kind {
			case Acquire, Restore:
				w.held |= 1 << i
			case Release:
				if w.endpoints>>i&1 != 0 {
					e.violate(from, fmt.Sprint("bridge: ", a), "a pod uses the address that is released")
				}
				w.held &^= 1 << i
			case Publish:
				w.pool[i] = plain
			case Suspend:
				w.pool[i] = suspended
			case Withdraw:
				w.pool[i] = absent
			case MarkForRelease:
				w.handshakes[i] = handshakeState(MarkedForRelease)
				w.asked |= 1 << i & (1<<explored - 1)
			case Unmark:
				w.handshakes[i] = 0
			case MarkReleased:
				w.handshakes[i] = handshakeState(Released)
			}
			if k := a.Kind; k != Acquire && k != Restore && k != Release {
				w.current, w.cache, w.cacheUsed, w.cacheCurrent = false, written{}, 0, true
			}
		}
	}
	return w.normal()
}

// normal returns the state with one representation of what has no meaning.
func (w world) normal() world {
	if w.cacheCurrent {
		w.cache, w.cacheUsed = w.written, w.used
	}
	if !w.running {
		w.seen, w.current, w.restored, w.allocated = written{}, false, false, 0
	}
	return w
}

// see makes the agent read the CiliumNode and answer the marks, in its memory.
func (w world) see() world {
	w.seen, w.current = w.written, true
	for i := range w.seen.handshakes {
		in := i != pingBit && w.pool[min(i, explored-1)] != absent
		w.seen.handshakes[i] = handshakeState(crdagent.Answer(handshakeStates[w.seen.handshakes[i]], in, w.allocated>>i&1 != 0))
	}
	return w
}

// overlook makes the agent read the CiliumNode and answer the ping only, as cilium-agent does when it starts
// before it has its allocators. It answers the marks when the CiliumNode changes.
func (w world) overlook() world {
	seen := w.see()
	copy(seen.seen.handshakes[:explored], w.handshakes[:])
	return seen
}

// writeStatus makes the agent write its status. It fails if the CiliumNode has changed since it was seen.
func (w world) writeStatus() world {
	own := w.allocated
	if w.restored {
		own |= ownBit
	}
	if !w.current || w.handshakes == w.seen.handshakes && w.used == own {
		return w
	}
	if w.cacheCurrent {
		w.cache, w.cacheUsed, w.cacheCurrent = w.written, w.used, false
	}
	w.handshakes, w.used, w.valid = w.seen.handshakes, own, false
	return w
}

// restore makes a started agent restore its endpoints.
func (e *explorer) restore(w world) world {
	for i := range explored {
		if w.endpoints>>i&1 != 0 && (w.seen.pool[i] == absent || !allocatable(w.seen.handshakes[i])) {
			e.violate(w, "agent: restores its endpoints", fmt.Sprintf("it drops the endpoint of %s", exploredIP(i)))
		}
	}
	w.allocated, w.restored = w.endpoints, true
	return w
}

func allocatable(handshake uint8) bool {
	return crdagent.Allocatable(handshakeStates[handshake])
}

// drain lets the time of a drain pass.
func (w world) drain() world {
	for i := range explored {
		if w.pool[i] == suspended && w.used>>i&1 == 0 && handshakeStates[w.handshakes[pingBit]] == DoNotRelease {
			w.drained |= 1 << i
		}
	}
	return w
}

// reported reports whether a running agent has restored its endpoints, and written which addresses it uses.
func (w world) reported() bool { return w.running && w.restored && w.used == w.allocated|ownBit }

// steps reaches every state that follows a state.
func (e *explorer) steps(w world) {
	for i, in := range w.pool {
		if in != absent && w.held>>i&1 == 0 {
			e.violate(w, "", fmt.Sprintf("%s is in the pool and not held", exploredIP(i)))
		}
	}
	if w.plan != 0 {
		e.execute(w)
	} else {
		for choice := range 16 {
			excess, fromCache, ownRange, late := choice&1 != 0, choice&2 != 0, choice&4 != 0, choice&8 != 0
			if after, plans := e.makePlan(w, fromCache, excess, ownRange, late); plans && (!fromCache || !w.cacheCurrent) {
				e.reach(w, after, "bridge: plans from %s", map[bool]string{true: "its cache", false: "a read"}[fromCache])
			}
		}
	}
	crashed := w
	crashed.plan, crashed.next, crashed.valid, crashed.skipped, crashed.drained, crashed.asked, crashed.cacheCurrent = 0, 0, false, 0, 0, 0, true
	e.reach(w, crashed.normal(), "bridge: restarts")
	if e.deaf || w.reported() {
		e.reach(w, w.drain(), "the time of a drain passes")
	}
	e.agentSteps(w)
}

func (e *explorer) agentSteps(w world) {
	if w.pods() < explored {
		bound := w
		bound.waiting++
		e.reach(w, bound, "a pod is bound")
	}
	if !w.running {
		w2 := w
		w2.running = true
		e.reach(w, w2.see(), "agent: starts, and answers the marks")
		e.reach(w, w2.overlook(), "agent: starts, and overlooks the marks")
		return
	}
	stopped := w
	stopped.running = false
	e.reach(w, stopped.normal(), "agent: stops")
	if !w.current {
		e.reach(w, w.see(), "agent: sees the CiliumNode, and answers the marks")
	}
	e.reach(w, w.writeStatus(), "agent: writes its status")
	if !w.restored {
		e.reach(w, e.restore(w), "agent: restores its endpoints")
		return
	}
	for i := range explored {
		pod := w
		pod.allocated ^= 1 << i
		pod.endpoints ^= 1 << i
		switch {
		case w.endpoints>>i&1 != 0:
			e.reach(w, pod, "the pod with %s ends", exploredIP(i))
		case w.waiting > 0 && w.seen.pool[i] == plain && allocatable(w.seen.handshakes[i]):
			pod.waiting--
			e.reach(w, pod, "a pod gets %s", exploredIP(i))
		}
	}
}

// ends lets all components act without a fault until nothing changes, and records a violation if a release
// has not ended. known are the states that were found to end.
func (e *explorer) ends(start world, ownRange bool, known map[world]bool) {
	w, path := start, []world{}
	for range 100 {
		if known[w] {
			break
		}
		path = append(path, w)
		before := w
		for _, late := range []bool{true, false} {
			w.plan, w.next, w.valid, w.skipped, w.running = 0, 0, false, 0, true
			if !w.current {
				w = w.see()
			}
			if !w.restored {
				w = e.restore(w)
			}
			w = w.writeStatus().drain()
			if after, plans := e.makePlan(w, false, true, ownRange, late); plans {
				for _, s := range planSteps(e.plans[after.plan-1]) {
					after = e.apply(w, after, s.actions)
				}
				w = after
			}
			w.plan, w.next, w.valid, w.skipped, w.cacheCurrent = 0, 0, false, 0, true
			w = w.normal()
		}
		if w == before {
			break
		}
	}
	for i, in := range w.pool {
		if !known[w] && (in == suspended || (in == absent) != (w.held>>i&1 == 0)) || w.handshakes != [explored + 1]uint8{} && !known[w] {
			e.violate(start, "no more faults", fmt.Sprintf("a release does not end: %+v", w))
			return
		}
	}
	for _, w := range path {
		known[w] = true
	}
}

// shortStates bounds an exploration of "go test -short"; "make explore" has no bound.
const shortStates = 100_000

func explore(deaf, podsListed bool) *explorer {
	e := &explorer{settings: Settings{MaxAllocate: agentAddresses + explored, ReleaseExcess: true}, deaf: deaf, podsListed: podsListed, planID: map[situation]uint16{}, idOf: map[string]uint16{}, from: map[world]origin{}}
	first := world{cacheCurrent: true}
	e.from[first] = origin{}
	e.queue = append(e.queue, first)
	for n := 0; n < len(e.queue) && e.fault == "" && !(testing.Short() && n == shortStates); n++ {
		e.steps(e.queue[n])
	}
	for _, ownRange := range []bool{false, true} {
		known := map[world]bool{}
		for n := 0; n < len(e.queue) && e.fault == ""; n++ {
			e.ends(e.queue[n], ownRange, known)
		}
	}
	return e
}

// TestExplore explores every interleaving of bridge, daemon and an agent that follows Cilium's handshake,
// with two slots and two pods, crashes, lost requests, conflicts and an outdated cache, breadth first: no
// address of a pod is released, none is published that is not held, no endpoint is dropped, and every
// release ends. At any moment the range can be found to be the node's own, or not.
func TestExplore(t *testing.T) {
	e := explore(false, false)
	t.Logf("%d states, %d plans", len(e.from), len(e.plans))
	if e.fault != "" {
		t.Error(e.fault)
	}
}

// The exploration finds the limit of the protocol that docs/design/bridge.md names, "Limit".
func TestExploreLimit(t *testing.T) {
	if e := explore(true, false); !strings.Contains(e.fault, "drops the endpoint") && !strings.Contains(e.fault, "a pod uses") {
		t.Errorf("of %d states none is a release of a used address: %s", len(e.from), e.fault)
	} else {
		t.Log(e.fault)
	}
}

// A bridge that lists the pods does not have the limit of TestExploreLimit.
func TestExploreListedPods(t *testing.T) {
	e := explore(true, true)
	t.Logf("%d states, %d plans", len(e.from), len(e.plans))
	if e.fault != "" {
		t.Error(e.fault)
	}
}
