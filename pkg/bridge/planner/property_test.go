package planner

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// node is the CiliumNode as the API server has it.
type node struct {
	version int
	pool    map[netip.Addr]Entry
	used    map[netip.Addr]Entry
	release map[netip.Addr]Handshake
}

func (n node) copy() node {
	return node{n.version, maps.Clone(n.pool), maps.Clone(n.used), maps.Clone(n.release)}
}

// agent imitates cilium-agent in crd mode (docs/bridge.md, What the agent does).
type agent struct {
	// alive is running; restored has got back its endpoints.
	alive, restored bool
	// seen is the CiliumNode that it works with; endpoints are on its disk.
	seen      node
	allocated map[netip.Addr]Entry
	endpoints map[netip.Addr]bool
}

// world is everything outside the bridge. What it must never see is an error.
type world struct {
	t        *rapid.T
	families int
	node     node
	agent    agent
	// held are the sidecar's slots; lost are those that the plugin denies.
	held map[int][]netip.Addr
	lost map[int]bool
	// taken are the addresses that somebody else has got from the plugin.
	taken   map[netip.Addr]bool
	size    int
	rested  map[netip.Addr]bool
	refused map[netip.Addr]bool
	failed  bool
	foreign netip.Addr
	// madeAgain: the CiliumNode is another one, which says nothing of what was used.
	madeAgain bool
	// unknown are addresses of endpoints that neither the sidecar nor the CiliumNode
	// can know of any more: one forgot them, the other was made again.
	unknown map[netip.Addr]bool
}

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, families: rapid.IntRange(1, 2).Draw(t, "families"), size: rapid.IntRange(8, 24).Draw(t, "size"),
		node:  node{pool: map[netip.Addr]Entry{}, used: map[netip.Addr]Entry{}, release: map[netip.Addr]Handshake{}},
		agent: agent{allocated: map[netip.Addr]Entry{}, endpoints: map[netip.Addr]bool{}},
		held:  map[int][]netip.Addr{}, lost: map[int]bool{}, taken: map[netip.Addr]bool{},
		rested: map[netip.Addr]bool{}, refused: map[netip.Addr]bool{}, foreign: netip.MustParseAddr("172.16.0.1"), unknown: map[netip.Addr]bool{},
	}
	w.node.pool[w.foreign] = Entry{}
	return w
}

func address(family, i int) netip.Addr {
	if family == 0 {
		return netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd00::%x", i))
}

// view is what the bridge sees.
func (w *world) view() View {
	v := View{
		Pool: maps.Clone(w.node.pool), Used: maps.Clone(w.node.used), Handshakes: maps.Clone(w.node.release),
		Drained: maps.Clone(w.rested), Refused: maps.Clone(w.refused), Exhausted: w.failed,
	}
	for n, ips := range w.held {
		v.Slots = append(v.Slots, Slot{Number: n, Addresses: ips, Held: !w.lost[n]})
	}
	return v
}

// free is an address number that the plugin can give.
func (w *world) free() (int, bool) {
	for i := 1; i <= w.size; i++ {
		if !w.has(address(0, i)) && !w.taken[address(0, i)] {
			return i, true
		}
	}
	return 0, false
}

func (w *world) has(ip netip.Addr) bool {
	for n, ips := range w.held {
		if !w.lost[n] && slices.Contains(ips, ip) {
			return true
		}
	}
	return false
}

// execute does one action; false is a failure.
func (w *world) execute(a Action) bool {
	switch a.Kind {
	case Acquire:
		i, ok := w.free()
		if !ok {
			w.failed = true
			return false
		}
		var ips []netip.Addr
		for f := range w.families {
			ips = append(ips, address(f, i))
		}
		w.held[a.Slot], w.lost[a.Slot] = ips, false
	case Restore:
		return w.restore(a.Slot, a.IPs[0])
	case Release:
		for _, ip := range a.IPs {
			if _, published := w.node.pool[ip]; published {
				w.t.Fatalf("%v: %s is in the pool", a, ip)
			}
		}
		w.held[a.Slot] = slices.DeleteFunc(slices.Clone(w.held[a.Slot]), func(ip netip.Addr) bool { return slices.Contains(a.IPs, ip) })
		if len(w.held[a.Slot]) == 0 {
			delete(w.held, a.Slot)
			delete(w.lost, a.Slot)
		}
	case Publish, Cordon:
		for _, ip := range a.IPs {
			if a.Kind == Publish && !w.has(ip) {
				w.t.Fatalf("%v: %s is not held", a, ip)
			}
			w.node.pool[ip] = EntryOf(a.Slot, a.Kind == Cordon)
			delete(w.rested, ip)
		}
	case Withdraw:
		for _, ip := range a.IPs {
			if w.agent.allocated[ip] != (Entry{}) || w.agent.endpoints[ip] {
				w.t.Fatalf("%v: the agent uses %s", a, ip)
			}
			delete(w.node.pool, ip)
		}
	case MarkForRelease:
		for _, ip := range a.IPs {
			w.node.release[ip] = Marked
		}
	case Unmark:
		for _, ip := range a.IPs {
			delete(w.node.release, ip)
		}
	case MarkReleased:
		for _, ip := range a.IPs {
			w.node.release[ip] = Released
		}
	}
	w.node.version++
	return true
}

// restore gets an address back if nobody else has it.
func (w *world) restore(n int, ip netip.Addr) bool {
	ips, there := w.held[n]
	if w.taken[ip] || w.has(ip) || there && !slices.Contains(ips, ip) {
		w.refused[ip] = true
		return false
	}
	if !there {
		w.held[n] = []netip.Addr{ip}
	}
	w.lost[n] = false
	return true
}

// bridge plans once and does as much of it as it gets to. Writes of one part that
// follow one another are one write; the agent may act between two, and then the
// next one is a conflict.
func (w *world) bridge(s Settings, steps int, agentActs func() bool) {
	before := w.ours()
	plan := Plan(w.view(), s)
	for version := w.node.version; len(plan) > 0 && steps != 0; steps-- {
		if part(plan[0]) != ofSidecar && w.node.version != version {
			return
		}
		step := plan[:1]
		for part(plan[0]) != ofSidecar && len(step) < len(plan) && part(plan[len(step)]) == part(plan[0]) {
			step = plan[:len(step)+1]
		}
		plan = plan[len(step):]
		for _, a := range step {
			if a.Kind != Report && !w.execute(a) {
				return
			}
		}
		version = w.node.version
		if before == 0 && w.ours() > 0 {
			w.checkFirst(s)
		}
		if agentActs() && w.agent.alive {
			w.sync()
		}
	}
}

const (
	ofSidecar = iota
	ofSpec
	ofStatus
)

func part(a Action) int {
	switch a.Kind {
	case Publish, Cordon, Withdraw:
		return ofSpec
	case MarkForRelease, Unmark, MarkReleased:
		return ofStatus
	}
	return ofSidecar
}

// ours is how many entries of the pool the bridge has written.
func (w *world) ours() int {
	n := 0
	for _, e := range w.node.pool {
		if _, ours := e.Slot(); ours {
			n++
		}
	}
	return n
}

// checkFirst looks at the first publication: the agent takes it for all there is.
func (w *world) checkFirst(s Settings) {
	least := max(s.MinAllocate, agentAddresses+s.PreAllocate)
	if s.MaxAllocate > 0 {
		least = min(least, s.MaxAllocate)
	}
	if w.failed {
		least = agentAddresses
	}
	if w.ours() < least {
		w.t.Fatalf("%d addresses are published at first, and %d are needed", w.ours(), least)
	}
}

// sync is the agent taking note of the CiliumNode, and answering.
func (w *world) sync() {
	a := &w.agent
	a.seen = w.node.copy()
	answered := false
	for ip, state := range a.seen.release {
		_, published := a.seen.pool[ip]
		_, allocated := a.allocated[ip]
		switch {
		case state == Marked && (!published || allocated):
			a.seen.release[ip], answered = DoNotRelease, true
		case state == Marked:
			a.seen.release[ip], answered = Ready, true
		case state == Released && !published:
			delete(a.seen.release, ip)
			answered = true
		}
	}
	if answered {
		w.report()
	}
}

// report is the agent writing its status, all of it, if nobody wrote since.
func (w *world) report() {
	a := &w.agent
	if a.seen.version != w.node.version {
		return
	}
	w.node.used, w.node.release = maps.Clone(a.allocated), maps.Clone(a.seen.release)
	w.node.version++
	a.seen.version = w.node.version
}

// catchUp is a living agent that has had the time to write what it uses.
func (w *world) catchUp() {
	w.sync()
	w.report()
}

// start is the agent's start: it answers before it has got its endpoints back.
func (w *world) start() {
	a := &w.agent
	a.alive, a.restored, a.allocated = true, false, map[netip.Addr]Entry{}
	w.sync()
}

// restoreEndpoints is the rest of the agent's start, for which it waits until the
// pool is filled. An endpoint whose address it may not have is dropped.
func (w *world) restoreEndpoints() {
	a := &w.agent
	if !a.alive || a.restored {
		return
	}
	w.sync()
	if w.ours() < agentAddresses {
		return
	}
	for ip := range a.endpoints {
		entry, published := a.seen.pool[ip]
		if !published && w.excused(ip) {
			delete(a.endpoints, ip) // neither sidecar nor CiliumNode could know of it
			continue
		}
		if !published || a.seen.release[ip] != "" && a.seen.release[ip] != DoNotRelease {
			w.t.Fatalf("the agent drops the endpoint of %s at its start: pool %v, handshake %q", ip, published, a.seen.release[ip])
		}
		a.allocated[ip] = entry
	}
	a.restored = true
}

// allocate is a pod that gets an address of what the agent knows.
func (w *world) allocate(pick int) {
	a := &w.agent
	if !a.restored {
		return
	}
	var can []netip.Addr
	for ip, e := range a.seen.pool {
		_, allocated := a.allocated[ip]
		if state := a.seen.release[ip]; !allocated && e.Owner == "" && ip != w.foreign && (state == "" || state == DoNotRelease) {
			can = append(can, ip)
		}
	}
	if len(can) == 0 {
		return
	}
	slices.SortFunc(can, netip.Addr.Compare)
	ip := can[pick%len(can)]
	a.allocated[ip], a.endpoints[ip] = a.seen.pool[ip], true
	delete(w.unknown, ip)
}

func (w *world) release(pick int) {
	a := &w.agent
	if ips := sortedAddrs(a.allocated); len(ips) > 0 {
		ip := ips[pick%len(ips)]
		delete(a.allocated, ip)
		delete(a.endpoints, ip)
	}
}

// check looks at the pool at any moment: what an endpoint has is in it.
func (w *world) check(faults bool) {
	for ip := range w.agent.endpoints {
		if _, published := w.node.pool[ip]; !published && w.ours() > 0 && !w.excused(ip) {
			w.t.Fatalf("%s has an endpoint and is not in the pool", ip)
		}
	}
	if faults {
		return
	}
	for ip := range w.node.pool {
		if ip != w.foreign && !w.has(ip) {
			w.t.Fatalf("%s is in the pool and not held", ip)
		}
	}
}

// TestTheViewsConverge lets bridge, agent and sidecar act in any order and die
// at any moment. At every moment an address with an endpoint is in the pool, and
// while the sidecar loses nothing, what is in the pool is held. Left alone, they
// come to rest with as many free addresses as the settings say.
func TestTheViewsConverge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		s := Settings{
			MinAllocate: rapid.IntRange(0, 5).Draw(rt, "min-allocate"), PreAllocate: rapid.IntRange(1, 4).Draw(rt, "pre-allocate"),
			MaxAllocate: rapid.SampledFrom([]int{0, 9, 12}).Draw(rt, "max-allocate"), MaxAboveWatermark: rapid.IntRange(0, 2).Draw(rt, "max-above-watermark"), ReleaseExcess: true,
		}
		faults := rapid.Bool().Draw(rt, "the sidecar loses")
		pick := rapid.IntRange(0, 1000)
		steps := map[string]func(*rapid.T){
			"bridge": func(rt *rapid.T) {
				steps := rapid.IntRange(0, 12).Draw(rt, "actions before it dies")
				w.bridge(s, steps, func() bool { return rapid.Bool().Draw(rt, "the agent acts") })
			},
			"sync": func(*rapid.T) {
				if w.agent.alive {
					w.sync()
				}
			},
			"report": func(*rapid.T) {
				if w.agent.alive {
					w.report()
				}
			},
			"a pod comes": func(rt *rapid.T) {
				if w.agent.alive {
					w.allocate(pick.Draw(rt, "which"))
				}
			},
			"a pod goes": func(rt *rapid.T) {
				if w.agent.alive {
					w.release(pick.Draw(rt, "which"))
				}
			},
			"the agent dies":   func(*rapid.T) { w.agent.alive, w.agent.restored = false, false },
			"the agent starts": func(*rapid.T) { w.start() },
			"it restores":      func(*rapid.T) { w.restoreEndpoints() },
			"the CiliumNode is made again": func(*rapid.T) {
				w.agent.alive, w.agent.restored = false, false
				w.node = node{w.node.version + 1, map[netip.Addr]Entry{w.foreign: {}}, map[netip.Addr]Entry{}, map[netip.Addr]Handshake{}}
				clear(w.rested)
				w.madeAgain = true
				w.forget()
			},
			"time passes":        func(*rapid.T) { w.rest() },
			"restores are tried": func(*rapid.T) { clear(w.refused); w.failed = false },
			"":                   func(*rapid.T) { w.check(faults) },
		}
		if faults {
			steps["the plugin denies a slot"] = func(rt *rapid.T) {
				if n := rapid.IntRange(0, 5).Draw(rt, "slot"); len(w.held[n]) > 0 {
					w.lost[n] = true
				}
			}
			steps["the sidecar forgets a slot"] = func(rt *rapid.T) {
				delete(w.held, rapid.IntRange(0, 5).Draw(rt, "slot"))
				w.forget()
			}
			steps["the plugin gives an address to somebody else"] = func(rt *rapid.T) {
				if ip := address(0, rapid.IntRange(1, w.size).Draw(rt, "address")); !w.has(ip) {
					w.taken[ip] = true
				}
			}
		}
		rt.Repeat(steps)
		w.settle(s)
	})
}

// forget notes whose address nobody can know of from now on, whoever gets it later.
func (w *world) forget() {
	for ip := range w.agent.endpoints {
		_, published := w.node.pool[ip]
		_, used := w.node.used[ip]
		known := published || used
		for _, ips := range w.held {
			known = known || slices.Contains(ips, ip)
		}
		if !known {
			w.unknown[ip] = true
		}
	}
}

// excused tells whether an endpoint may lose its address: nobody knows of it, or
// the CiliumNode is another one and the plugin has lost it.
func (w *world) excused(ip netip.Addr) bool { return w.unknown[ip] || w.madeAgain && !w.has(ip) }

// rest lets so much time pass that a living agent has got back its endpoints and
// written what it uses. One that is dead all the time, or is killed again before it
// has, is the limit that docs/bridge.md names.
func (w *world) rest() {
	w.restoreEndpoints()
	if !w.agent.restored {
		return
	}
	w.catchUp()
	for ip, e := range w.node.pool {
		if _, used := w.node.used[ip]; e.Cordoned() && w.node.release[Probe] == DoNotRelease && !used {
			w.rested[ip] = true
		}
	}
	for ip := range w.node.used {
		delete(w.rested, ip)
	}
}

// settle lets everybody live and act until nothing changes, and looks at the result.
func (w *world) settle(s Settings) {
	w.start()
	never := func() bool { return false }
	for round := 0; ; round++ {
		before := fmt.Sprint(w.node.pool, w.node.used, w.node.release, w.held, w.lost, w.rested, w.refused, w.failed)
		w.bridge(s, -1, never)
		w.restoreEndpoints()
		w.catchUp()
		w.rest()
		if before == fmt.Sprint(w.node.pool, w.node.used, w.node.release, w.held, w.lost, w.rested, w.refused, w.failed) {
			break
		}
		if round > 500 {
			w.t.Fatalf("it does not come to rest: %v", Plan(w.view(), s))
		}
	}
	for ip := range w.node.pool {
		if _, used := w.node.used[ip]; ip != w.foreign && !w.has(ip) && !used {
			w.t.Fatalf("%s stays in the pool, neither held nor used; next %v; %+v", ip, Plan(w.view(), s), w.view())
		}
	}
	if w.ours() > 0 {
		w.checkCounts(s)
	}
	if len(w.node.release) > 0 {
		w.t.Fatalf("handshakes are left: %v; next %v; rested %v; held %v; pool %v", w.node.release, Plan(w.view(), s), w.rested, w.held, w.node.pool)
	}
	for _, a := range Plan(w.view(), s) {
		if a.Kind != Report && a.Kind != Acquire && a.Kind != Restore {
			w.t.Fatalf("something is left to do: %v; %+v", a, w.view())
		}
	}
}

// checkCounts looks at a node at rest: what the sidecar knows is published, and as
// many slots are free as the settings say.
func (w *world) checkCounts(s Settings) {
	held, used := 0, 0
	for n, ips := range w.held {
		inUse := false
		for _, ip := range ips {
			_, published := w.node.pool[ip]
			if !published {
				w.t.Fatalf("%s of slot %d is known to the sidecar and not in the pool", ip, n)
			}
		}
		if w.lost[n] {
			continue
		}
		for ip := range w.node.used {
			slot, ours := w.node.pool[ip].Slot()
			inUse = inUse || ours && slot == n
		}
		held++
		if inUse {
			used++
		}
	}
	least := max(s.MinAllocate, used+s.PreAllocate)
	most := max(least+s.MaxAboveWatermark, agentAddresses)
	limited := w.failed || s.MaxAllocate > 0 && held+len(w.lost) >= s.MaxAllocate
	if held < least && !limited || held > most {
		w.t.Fatalf("%d slots are held, %d of them used; want %d to %d", held, used, least, most)
	}
}
