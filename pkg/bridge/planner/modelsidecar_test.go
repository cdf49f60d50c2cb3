package planner

import (
	"net/netip"
	"slices"
)

// release releases a slot unless the plugin fails.
func (m *model) release(a Action) bool {
	for _, ip := range a.IPs {
		if _, published := m.node.pool[ip]; published {
			m.t.Fatalf("%v: %s is in the pool", a, ip)
		}
		if m.delFails[ip] {
			delete(m.delFails, ip)
			m.releaseFailed[ip] = true
			return false
		}
	}
	m.held[a.Slot] = slices.DeleteFunc(slices.Clone(m.held[a.Slot]), func(ip netip.Addr) bool { return slices.Contains(a.IPs, ip) })
	if len(m.held[a.Slot]) == 0 {
		delete(m.held, a.Slot)
		delete(m.lost, a.Slot)
	}
	return true
}

// restore restores an address unless another client has it.
func (m *model) restore(n int, ip netip.Addr) bool {
	ips, present := m.held[n]
	if m.taken[ip] || m.holds(ip) || present && !slices.Contains(ips, ip) {
		m.refused[ip] = true
		return false
	}
	if !present {
		m.held[n] = []netip.Addr{ip}
	}
	m.lost[n] = false
	return true
}
