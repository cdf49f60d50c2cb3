package planner

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/crdagent"
)

// podOwner is the owner of every endpoint.
const podOwner = "default/pod"

// agent imitates cilium-agent in crd mode (docs/design/bridge.md, Behaviour of the agent).
type agent struct {
	// running is its process; restored reports whether it has restored its endpoints since the start.
	running, restored bool
	// seen is the CiliumNode that it works with; endpoints are on its disk.
	seen      node
	allocated map[netip.Addr]Entry
	endpoints map[netip.Addr]bool
}

// sync makes the agent read the CiliumNode and respond to the marks.
func (m *model) sync() {
	a := &m.agent
	a.seen = m.node.clone()
	answered := false
	for ip, state := range a.seen.handshakes {
		_, published := a.seen.pool[ip]
		_, allocated := a.allocated[ip]
		answer := crdagent.Answer(state, published, allocated)
		answered = answered || answer != state
		if a.seen.handshakes[ip] = answer; answer == "" {
			delete(a.seen.handshakes, ip)
		}
	}
	if answered {
		m.writeStatus()
	}
}

// writeStatus makes the agent write its whole status, unless another client has written since its last
// read.
func (m *model) writeStatus() {
	a := &m.agent
	if a.seen.version != m.node.version {
		return
	}
	m.node.used, m.node.handshakes = maps.Clone(a.allocated), maps.Clone(a.seen.handshakes)
	m.node.version++
	a.seen.version = m.node.version
}

// startAgent starts the agent: it responds before it has restored its endpoints.
func (m *model) startAgent() {
	a := &m.agent
	a.running, a.restored, a.allocated = true, false, map[netip.Addr]Entry{}
	m.sync()
}

func (m *model) stopAgent() { m.agent.running, m.agent.restored = false, false }

// restoreEndpoints is the rest of the agent's start, which waits until the pool is filled. An endpoint
// that cannot have its address is dropped, which fails the test.
func (m *model) restoreEndpoints() {
	a := &m.agent
	if !a.running || a.restored {
		return
	}
	m.sync()
	if m.published() < agentAddresses {
		return
	}
	for ip := range a.endpoints {
		entry, published := a.seen.pool[ip]
		if !published && m.mayDrop(ip) {
			delete(a.endpoints, ip)
			continue
		}
		if !published || !crdagent.Allocatable(a.seen.handshakes[ip]) {
			m.t.Fatalf("the agent drops the endpoint of %s at its start: published %v, handshake %q", ip, published, a.seen.handshakes[ip])
		}
		a.allocated[ip] = Entry{Owner: podOwner, Resource: entry.Resource}
	}
	a.restored = true
}

// addPod allocates an address that the agent knows to a pod; pick chooses it.
func (m *model) addPod(pick int) {
	a := &m.agent
	if !a.restored {
		return
	}
	var free []netip.Addr
	for ip, e := range a.seen.pool {
		_, allocated := a.allocated[ip]
		if !allocated && e.Owner == "" && ip != m.foreign && crdagent.Allocatable(a.seen.handshakes[ip]) {
			free = append(free, ip)
		}
	}
	if len(free) == 0 {
		return
	}
	slices.SortFunc(free, netip.Addr.Compare)
	ip := free[pick%len(free)]
	a.allocated[ip], a.endpoints[ip] = Entry{Owner: podOwner, Resource: a.seen.pool[ip].Resource}, true
	delete(m.forgotten, ip)
}

// deletePod deletes a pod; pick chooses it.
func (m *model) deletePod(pick int) {
	a := &m.agent
	if ips := sortedAddrs(a.allocated); len(ips) > 0 {
		ip := ips[pick%len(ips)]
		delete(a.allocated, ip)
		delete(a.endpoints, ip)
	}
}

// recordForgotten records the endpoints whose address no component knows from now on, whichever
// client gets it later. Without a watch of the pods one outside the ranges that only the daemon holds is
// released.
func (m *model) recordForgotten() {
	for ip := range m.agent.endpoints {
		_, published := m.node.pool[ip]
		_, used := m.node.used[ip]
		known := published || used
		for n, ips := range m.held {
			known = known || (m.watchesPods || !m.outside[n]) && slices.Contains(ips, ip)
		}
		if !known {
			m.forgotten[ip] = true
		}
	}
}

// mayDrop reports whether an endpoint may lose its address: no component knows it, or the CiliumNode was
// created again and the plugin has lost it.
func (m *model) mayDrop(ip netip.Addr) bool {
	return m.forgotten[ip] || m.recreated && !m.holds(ip)
}

// drain lets enough time pass for a running agent to restore its endpoints and to write which
// addresses it uses. An agent that does not run, or is killed before that, is the limit that
// docs/design/bridge.md names.
func (m *model) drain() {
	m.restoreEndpoints()
	if !m.agent.restored {
		return
	}
	m.sync()
	m.writeStatus()
	for ip, e := range m.node.pool {
		if _, used := m.node.used[ip]; e.Suspended() && m.node.handshakes[Ping] == DoNotRelease && !used {
			m.drained[ip] = true
		}
	}
	for ip := range m.node.used {
		delete(m.drained, ip)
	}
}
