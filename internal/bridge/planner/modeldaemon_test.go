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
		if m.watchesPods && m.agent.endpoints[ip] {
			m.t.Fatalf("%v: a pod has %s", a, ip)
		}
		if m.delFails[ip] {
			delete(m.delFails, ip)
			m.releaseFailed[ip] = true
			return false
		}
	}
	m.held[a.Slot] = slices.DeleteFunc(slices.Clone(m.held[a.Slot]), func(ip netip.Addr) bool { return slices.Contains(a.IPs, ip) })
	if len(m.claimed(a.Slot, m.held[a.Slot])) == 0 { // the last claim
		delete(m.held, a.Slot)
		delete(m.unclaimed, a.Slot)
		delete(m.lost, a.Slot)
		delete(m.outside, a.Slot)
	}
	return true
}

// adopt returns to a slot the addresses that the plugin still holds for it.
func (m *model) adopt(n int) bool {
	ips, is := m.leases[n]
	if is {
		m.held[n], m.lost[n], m.outside[n] = ips, false, false
		delete(m.leases, n)
	}
	return is
}

// restore restores an address unless another client has it. The plugin returns the wanted address of
// the other family if it is free, and any if none is wanted.
func (m *model) restore(n int, ip, also netip.Addr) bool {
	if slices.Contains(m.leases[n], ip) && m.held[n] == nil {
		return m.adopt(n)
	}
	ips, present := m.held[n]
	if m.unclaimed[n] && !m.lost[n] && !m.outside[n] && slices.Contains(ips, ip) {
		delete(m.unclaimed, n)
		return true
	}
	free := m.isFree(ip) && !slices.ContainsFunc(ips, func(ip netip.Addr) bool { return !m.isFree(ip) })
	if !free || m.outside[n] || present && !slices.Contains(ips, ip) {
		m.refused[ip] = true
		return false
	}
	if !present {
		m.held[n] = []netip.Addr{ip}
		if other, ok := m.otherAddress(ip, also); ok && m.families == 2 {
			m.held[n] = append(m.held[n], other)
		}
	}
	m.lost[n] = false
	return true
}

// otherAddress returns the address of the other family that the plugin allocates with ip, if it has one.
func (m *model) otherAddress(ip, also netip.Addr) (netip.Addr, bool) {
	if also.IsValid() && m.isFree(also) {
		return also, true
	}
	family := 0
	if ip.Is4() {
		family = 1
	}
	for i := 1; i <= m.size; i++ {
		if other := address(family, i); m.isFree(other) {
			return other, true
		}
	}
	return netip.Addr{}, false
}
