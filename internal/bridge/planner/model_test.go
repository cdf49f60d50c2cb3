package planner

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"pgregory.net/rapid"
)

// node is the CiliumNode at the API server.
type node struct {
	version    int
	pool       map[netip.Addr]Entry
	used       map[netip.Addr]Entry
	handshakes map[netip.Addr]Handshake
}

func newNode(version int) node {
	return node{version, map[netip.Addr]Entry{}, map[netip.Addr]Entry{}, map[netip.Addr]Handshake{}}
}

func (n node) clone() node {
	return node{n.version, maps.Clone(n.pool), maps.Clone(n.used), maps.Clone(n.handshakes)}
}

// model is the environment of the bridge: the CiliumNode, the agent and the daemon. It fails the test
// immediately when an invariant is violated.
type model struct {
	t        *rapid.T
	families int
	node     node
	agent    agent
	// held are the daemon's slots; lost are those that the plugin denies.
	held map[int][]netip.Addr
	lost map[int]bool
	// outside are those outside the ranges, unclaimed those whose IPv6 address no request has claimed yet.
	outside, unclaimed map[int]bool
	// leases are the addresses that the plugin holds for slots that the daemon has forgotten.
	leases map[int][]netip.Addr
	// watchesPods reports whether the bridge watches pods, podsPending whether they are not listed yet.
	watchesPods, podsPending bool
	// taken are the addresses that the plugin has allocated to another client; size is their number in
	// total.
	taken map[netip.Addr]bool
	size  int
	// drained, refused, releaseFailed, exhausted, batch, pods, headroom, rangeSize and excess are the bridge's own part of the
	// state. excess reports whether the excess has lasted.
	drained, refused, releaseFailed map[netip.Addr]bool
	exhausted, excess               bool
	batch, pods, headroom           int
	rangeSize                       int
	// delFails makes the next release of an address fail.
	delFails map[netip.Addr]bool
	// foreign is a pool entry that the bridge did not write.
	foreign netip.Addr
	// recreated reports whether the CiliumNode was deleted and created again, which loses the list of
	// used addresses.
	recreated bool
	// forgotten are addresses of endpoints that neither the daemon nor the CiliumNode can know any
	// more: one has lost them, the other was created again.
	forgotten map[netip.Addr]bool
}

func newModel(t *rapid.T) *model {
	m := &model{
		t: t, families: rapid.IntRange(1, 2).Draw(t, "families"), size: rapid.IntRange(8, 24).Draw(t, "size"),
		node:  newNode(0),
		agent: agent{allocated: map[netip.Addr]Entry{}, endpoints: map[netip.Addr]bool{}},
		held:  map[int][]netip.Addr{}, lost: map[int]bool{}, outside: map[int]bool{}, unclaimed: map[int]bool{}, leases: map[int][]netip.Addr{}, taken: map[netip.Addr]bool{},
		drained: map[netip.Addr]bool{}, refused: map[netip.Addr]bool{}, releaseFailed: map[netip.Addr]bool{}, delFails: map[netip.Addr]bool{},
		foreign: netip.MustParseAddr("172.16.0.1"), forgotten: map[netip.Addr]bool{}, watchesPods: rapid.Bool().Draw(t, "watches pods"),
	}
	m.node.pool[m.foreign] = Entry{}
	return m
}

func address(family, i int) netip.Addr {
	if family == 0 {
		return netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd00::%x", i))
}

func (m *model) plan(s Settings) Plan { return New(m.observed(), m.remembered(s), s) }

func (m *model) observed() Observed {
	o := Observed{
		Pool: maps.Clone(m.node.pool), Used: maps.Clone(m.node.used), Handshakes: maps.Clone(m.node.handshakes),
		Pods: m.pods, PodsPending: m.watchesPods && m.podsPending,
	}
	if m.watchesPods && !m.podsPending {
		o.PodIPs = maps.Clone(m.agent.endpoints)
	}
	for n, ips := range m.held {
		o.Slots = append(o.Slots, Slot{Number: n, Addresses: m.claimed(n, ips), Held: !m.lost[n], Outside: m.outside[n], Unclaimed: m.without(n, ips)})
	}
	return o
}

// claimed returns those of the addresses of a slot that a request has claimed.
func (m *model) claimed(n int, ips []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(ips), func(ip netip.Addr) bool { return m.unclaimed[n] && ip.Is6() })
}

// without returns the others.
func (m *model) without(n int, ips []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(ips), func(ip netip.Addr) bool { return !m.unclaimed[n] || ip.Is4() })
}

func (m *model) remembered(s Settings) Remembered {
	r := Remembered{
		Drained: maps.Clone(m.drained), Refused: maps.Clone(m.refused), ReleaseFailed: maps.Clone(m.releaseFailed), Exhausted: m.exhausted, Depleted: m.exhausted,
		Batch: m.batch, Headroom: m.headroom, RangeSize: m.rangeSize,
	}
	if m.excess {
		r.Excess = Count(m.observed(), r, s).Excess
	}
	return r
}

func (m *model) String() string {
	return fmt.Sprint(m.node.pool, m.node.used, m.node.handshakes, m.held, m.lost, m.outside, m.unclaimed, m.leases, m.drained, m.refused, m.releaseFailed, m.exhausted)
}

// free returns the number of an address that the plugin can allocate.
func (m *model) free() (int, bool) {
	for i := 1; i <= m.size; i++ {
		if m.isFree(address(0, i)) && (m.families == 1 || m.isFree(address(1, i))) {
			return i, true
		}
	}
	return 0, false
}

// isFree reports whether the plugin can allocate an address.
func (m *model) isFree(ip netip.Addr) bool { return !m.holds(ip) && !m.taken[ip] && !m.leased(ip) }

// leased reports whether the plugin holds an address for a slot that the daemon has forgotten.
func (m *model) leased(ip netip.Addr) bool {
	for _, ips := range m.leases {
		if slices.Contains(ips, ip) {
			return true
		}
	}
	return false
}

// holds reports whether the daemon holds an address.
func (m *model) holds(ip netip.Addr) bool {
	for n, ips := range m.held {
		if !m.lost[n] && slices.Contains(ips, ip) {
			return true
		}
	}
	return false
}

// published returns the number of pool entries that the bridge has written.
func (m *model) published() int {
	n := 0
	for _, e := range m.node.pool {
		if _, ours := e.Slot(); ours {
			n++
		}
	}
	return n
}

// execute executes one action, and reports whether it succeeded.
func (m *model) execute(a Action) bool {
	switch a.Kind {
	case Acquire:
		if m.adopt(a.Slot) {
			return true
		}
		i, ok := m.free()
		if !ok {
			m.exhausted = true
			return false
		}
		var ips []netip.Addr
		for f := range m.families {
			ips = append(ips, address(f, i))
		}
		m.held[a.Slot], m.lost[a.Slot], m.outside[a.Slot] = ips, false, false
	case Restore:
		return m.restore(a.Slot, a.IPs[0], a.Also)
	case Release:
		return m.release(a)
	}
	for _, ip := range a.IPs {
		switch a.Kind {
		case Publish, Suspend:
			if a.Kind == Publish && (!m.holds(ip) || m.outside[a.Slot]) {
				m.t.Fatalf("%v: %s is not held, or outside the ranges", a, ip)
			}
			m.node.pool[ip] = EntryOf(a.Slot, a.Kind == Suspend)
			delete(m.drained, ip)
		case Withdraw:
			if m.agent.allocated[ip] != (Entry{}) || m.agent.endpoints[ip] {
				m.t.Fatalf("%v: the agent uses %s", a, ip)
			}
			delete(m.node.pool, ip)
		case MarkForRelease:
			m.node.handshakes[ip] = MarkedForRelease
		case Unmark:
			delete(m.node.handshakes, ip)
		case MarkReleased:
			m.node.handshakes[ip] = Released
		}
	}
	m.node.version++
	return true
}

// reconcile plans once and executes at most that many steps; -1 means without a limit. A batch of writes is
// one step. The agent may act between two, and then the next write is a conflict. A request to the
// daemon that fails skips the other actions on its addresses.
func (m *model) reconcile(s Settings, steps int, agentActs func() bool) {
	before, version := m.published(), m.node.version
	o, r, failed := m.observed(), m.remembered(s), map[netip.Addr]bool{}
	step := func(actions ...Action) bool {
		actions = slices.DeleteFunc(slices.Clone(actions), func(a Action) bool {
			return slices.ContainsFunc(a.IPs, func(ip netip.Addr) bool { return failed[ip] })
		})
		if len(actions) == 0 {
			return true
		}
		if steps == 0 {
			return false
		}
		steps--
		for _, a := range actions {
			if !m.execute(a) {
				for _, ip := range a.IPs {
					failed[ip] = true
				}
			}
		}
		version = m.node.version
		if before == 0 && m.published() > 0 {
			m.checkInitial(o, r, s)
		}
		if agentActs() && m.agent.running {
			m.sync()
		}
		return true
	}
	write := func(batch []Action) bool { return len(batch) == 0 || m.node.version == version && step(batch...) }
	request := func(batch []Action) bool { return !slices.ContainsFunc(batch, func(a Action) bool { return !step(a) }) }
	plan := New(o, r, s)
	_ = write(plan.Unping) && write(plan.Pool) && write(plan.Marks) && request(plan.Restore) && request(plan.Release) &&
		write(plan.Released) && request(plan.Acquire)
}
