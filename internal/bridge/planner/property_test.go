package planner

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestConverge lets the bridge, the agent and the daemon act in any order and crash at any moment. At
// every moment an address with an endpoint is in the pool, and while the daemon loses nothing, every
// address in the pool is held. Without further events they converge, with as many free addresses as
// the settings demand.
func TestConverge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt)
		s := &Settings{
			MinAllocate: rapid.IntRange(0, 5).Draw(rt, "min-allocate"), PreAllocate: rapid.IntRange(1, 4).Draw(rt, "pre-allocate"),
			MaxAllocate: rapid.SampledFrom([]int{0, 9, 12}).Draw(rt, "max-allocate"), MaxAboveWatermark: rapid.IntRange(0, 2).Draw(rt, "max-above-watermark"), ReleaseExcess: true,
		}
		faults := rapid.Bool().Draw(rt, "daemon loses")
		steps := m.steps(s)
		steps[""] = func(*rapid.T) { m.check(faults) }
		if faults {
			m.addFaults(steps)
		}
		rt.Repeat(steps)
		m.converge(*s)
	})
}

// TestLostTogether loses the CiliumNode and the journal of the daemon, while any of many slots are used.
func TestLostTogether(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt)
		m.size, m.watchesPods, m.batch = 60, true, rapid.IntRange(1, 16).Draw(rt, "batch")
		for n := range rapid.IntRange(1, 40).Draw(rt, "slots") {
			for f := range m.families {
				m.leases[n] = append(m.leases[n], address(f, n+1))
				if rapid.IntRange(0, 3).Draw(rt, "used") == 0 {
					m.agent.endpoints[address(f, n+1)] = true
				}
			}
		}
		s := Settings{PreAllocate: 2, MaxPods: rapid.SampledFrom([]int{0, 40}).Draw(rt, "pods of the node")}
		for round := 0; m.published() == 0; round++ {
			if round > 100 {
				rt.Fatal("nothing is published")
			}
			m.reconcile(s, rapid.IntRange(1, 20).Draw(rt, "steps before a crash"), func() bool { return false })
		}
	})
}

// steps returns the steps of bridge and agent, and changes of the settings.
func (m *model) steps(s *Settings) map[string]func(*rapid.T) {
	pick := rapid.IntRange(0, 1000)
	whenRunning := func(step func(rt *rapid.T)) func(*rapid.T) {
		return func(rt *rapid.T) {
			if m.agent.running {
				step(rt)
			}
		}
	}
	return map[string]func(*rapid.T){
		"reconcile": func(rt *rapid.T) {
			steps := rapid.IntRange(0, 12).Draw(rt, "steps before a crash")
			m.reconcile(*s, steps, func() bool { return rapid.Bool().Draw(rt, "agent acts") })
		},
		"agent syncs":         whenRunning(func(*rapid.T) { m.sync() }),
		"agent writes status": whenRunning(func(*rapid.T) { m.writeStatus() }),
		"add pod":             whenRunning(func(rt *rapid.T) { m.addPod(pick.Draw(rt, "pick")) }),
		"delete pod":          whenRunning(func(rt *rapid.T) { m.deletePod(pick.Draw(rt, "pick")) }),
		"agent stops":         func(*rapid.T) { m.stopAgent() },
		"agent starts":        func(*rapid.T) { m.startAgent() },
		"agent restores":      func(*rapid.T) { m.restoreEndpoints() },
		"CiliumNode recreated": func(*rapid.T) {
			m.stopAgent()
			m.node = newNode(m.node.version + 1)
			m.node.pool[m.foreign] = Entry{}
			clear(m.drained)
			m.recreated = true
			m.recordForgotten()
		},
		"ranges change": func(rt *rapid.T) {
			for n := range m.held {
				m.outside[n] = true
			}
			for _, slots := range []map[int][]netip.Addr{m.held, m.leases} {
				for _, ips := range slots {
					for _, ip := range ips {
						m.taken[ip] = true // by another node
					}
				}
			}
			clear(m.leases)
			m.recordForgotten()
		},
		"IPv6 is served later": func(*rapid.T) {
			for n, ips := range m.held {
				m.unclaimed[n] = m.families == 2 && !slices.ContainsFunc(ips, func(ip netip.Addr) bool {
					_, published := m.node.pool[ip]
					_, used := m.node.used[ip]
					return ip.Is6() && (published || used || m.node.handshakes[ip] != "" || m.agent.endpoints[ip])
				})
			}
		},
		"drain":        func(*rapid.T) { m.drain() },
		"backoffs end": func(*rapid.T) { m.endBackoffs() },
		"excess lasts": func(rt *rapid.T) { m.excess = rapid.Bool().Draw(rt, "lasted") },
		"batch":        func(rt *rapid.T) { m.batch = rapid.IntRange(0, 4).Draw(rt, "batch") },
		"status is invented": func(rt *rapid.T) {
			for n := range rapid.IntRange(1, 30).Draw(rt, "addresses") {
				m.node.used[invented(n)] = Entry{Owner: podOwner, Resource: EntryOf(n, false).Resource}
			}
			m.node.version++
		},
		"pods of the node": func(rt *rapid.T) { s.MaxPods = rapid.SampledFrom([]int{0, 4, 8}).Draw(rt, "pods of the node") },
		"end of the range": func(rt *rapid.T) {
			m.rangeSize = 0
			if rapid.Bool().Draw(rt, "known") {
				m.rangeSize = Count(m.observed(), m.remembered(*s), *s).Retained
			}
		},
		"pods pending": func(rt *rapid.T) { m.podsPending = rapid.Bool().Draw(rt, "pending") },
		"pods":         func(rt *rapid.T) { m.pods = rapid.IntRange(0, 12).Draw(rt, "pods") },
		"headroom":     func(rt *rapid.T) { m.headroom = rapid.SampledFrom([]int{0, 0, 2, 4}).Draw(rt, "headroom") },
	}
}

// addFaults adds the steps with which the daemon loses addresses.
func (m *model) addFaults(steps map[string]func(*rapid.T)) {
	steps["plugin denies slot"] = func(rt *rapid.T) {
		if n := rapid.IntRange(0, 5).Draw(rt, "slot"); len(m.held[n]) > 0 {
			m.lost[n] = true
		}
	}
	steps["daemon loses slot"] = func(rt *rapid.T) {
		n := rapid.IntRange(0, 5).Draw(rt, "slot")
		delete(m.held, n)
		delete(m.unclaimed, n)
		m.recordForgotten()
	}
	steps["daemon loses its journal"] = func(*rapid.T) {
		for n, ips := range m.held {
			if !m.lost[n] && !m.outside[n] {
				m.leases[n] = ips
			}
		}
		clear(m.held)
		clear(m.lost)
		clear(m.outside)
		clear(m.unclaimed)
		m.recordForgotten()
	}
	steps["release fails"] = func(rt *rapid.T) {
		m.delFails[address(0, rapid.IntRange(1, m.size).Draw(rt, "address"))] = true
	}
	steps["another client allocates"] = func(rt *rapid.T) {
		if ip := address(0, rapid.IntRange(1, m.size).Draw(rt, "address")); !m.holds(ip) && !m.leased(ip) {
			m.taken[ip] = true
		}
	}
}

func (m *model) endBackoffs() {
	clear(m.refused)
	clear(m.releaseFailed)
	m.exhausted = false
}

// check checks the invariants of every moment.
func (m *model) check(faults bool) {
	for ip := range m.agent.endpoints {
		if _, published := m.node.pool[ip]; !published && m.published() > 0 && !m.mayDrop(ip) {
			m.t.Fatalf("%s has an endpoint and is not in the pool", ip)
		}
	}
	if faults {
		return
	}
	for ip := range m.node.pool {
		if ip != m.foreign && !m.holds(ip) {
			m.t.Fatalf("%s is in the pool and not held", ip)
		}
	}
}

// checkInitial checks the first publication, which the agent takes for the whole pool. o is what it
// was planned from. If the plugin has returned the address of one pod, it has returned all that
// it holds.
func (m *model) checkInitial(o Observed, r Remembered, s Settings) {
	if m.published() < agentAddresses {
		m.t.Fatalf("the first publication has %d addresses; want %d", m.published(), agentAddresses)
	}
	if o.PodsPending {
		m.t.Fatal("the first publication does not wait for the list of pods")
	}
	if r.Depleted || s.MaxAllocate > 0 && len(o.Slots) >= s.MaxAllocate {
		return
	}
	returned := slices.ContainsFunc(sortedAddrs(o.PodIPs), func(ip netip.Addr) bool { _, published := m.node.pool[ip]; return published })
	for ip := range o.PodIPs {
		if returned && m.leased(ip) {
			m.t.Fatalf("the first publication does not have %s, which a pod has and the plugin holds", ip)
		}
	}
}

// converge lets all components act until nothing changes, and checks the result.
func (m *model) converge(s Settings) {
	m.startAgent()
	m.excess, m.batch, m.headroom, m.podsPending, m.rangeSize = true, 1, 0, false, 0
	clear(m.delFails)
	never := func() bool { return false }
	for round := 0; ; round++ {
		before := m.String()
		m.reconcile(s, -1, never)
		m.restoreEndpoints()
		m.sync()
		m.writeStatus()
		m.drain()
		clear(m.releaseFailed)
		if before == m.String() {
			break
		}
		if round > 500 {
			m.t.Fatalf("does not converge: %v", m.plan(s))
		}
	}
	for ip := range m.node.pool {
		if _, used := m.node.used[ip]; ip != m.foreign && !m.holds(ip) && !used {
			m.t.Fatalf("%s stays in the pool, neither held nor used; plan %v; %+v", ip, m.plan(s), m.observed())
		}
	}
	if m.published() > 0 {
		m.checkCounts(s)
	} else if !m.exhausted && (s.MaxAllocate == 0 || len(m.lost) == 0) {
		m.t.Fatalf("nothing is published; %+v", m.observed())
	}
	if len(m.node.handshakes) > 0 {
		m.t.Fatalf("handshakes are left: %v; plan %v; drained %v; held %v; pool %v", m.node.handshakes, m.plan(s), m.drained, m.held, m.node.pool)
	}
	plan := m.plan(s)
	if left := len(plan.Actions()) - len(plan.Acquire) - len(plan.Restore); left > 0 {
		m.t.Fatalf("something is left to do: %v; %+v", plan, m.observed())
	}
}

// checkCounts checks a converged node: every slot is published, and as many are free as the settings
// demand.
func (m *model) checkCounts(s Settings) {
	held, used := 0, 0
	for n, ips := range m.held {
		if m.lost[n] && m.outside[n] {
			continue // its unused addresses are withdrawn
		}
		m.checkPublished(n, ips)
		if m.lost[n] {
			continue
		}
		held++
		switch {
		case m.uses(n):
			used++
		case m.outside[n]:
			m.t.Fatalf("slot %d is unused, outside the ranges and held", n)
		}
	}
	least := max(used, m.pods+agentAddresses) + s.PreAllocate
	if s.MaxPods > 0 {
		least = max(least-s.PreAllocate, agentAddresses+s.MaxPods)
	}
	least = max(least, s.MinAllocate)
	most := least + s.MaxAboveWatermark
	if s.MaxAllocate > 0 {
		least, most = min(least, s.MaxAllocate), max(min(most, s.MaxAllocate), used)
	}
	limited := m.exhausted || s.MaxAllocate > 0 && held+len(m.lost) >= s.MaxAllocate
	if held < least && !limited || held > most {
		m.t.Fatalf("%d slots are held, %d of them used; want %d to %d", held, used, least, most)
	}
}

func (m *model) checkPublished(n int, ips []netip.Addr) {
	for _, ip := range ips {
		if _, published := m.node.pool[ip]; !published && !m.outside[n] {
			m.t.Fatalf("the daemon lists %s of slot %d, which is not in the pool", ip, n)
		}
	}
}

// uses reports whether the agent uses an address of a slot.
func (m *model) uses(n int) bool {
	for ip := range m.node.used {
		if slot, ours := m.node.pool[ip].Slot(); ours && slot == n {
			return true
		}
	}
	return false
}
