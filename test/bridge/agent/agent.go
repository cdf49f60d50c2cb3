// Package agent imitates the part of cilium-agent in ipam mode crd that the CiliumNode shows
// (docs/design/bridge.md, Behaviour of the agent). A test drives it step by step.
package agent

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/crdagent"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
)

// Agent is one cilium-agent. An endpoint that it would drop fails the test.
type Agent struct {
	server  *apiserver.Server
	name    string
	running bool
	// seen is the CiliumNode that it works with; endpoints are on its disk.
	seen      apiserver.Node
	allocated map[string]apiserver.Entry
	endpoints map[string]string
}

// New returns an agent of the node with this name, which does not run yet.
func New(server *apiserver.Server, name string) *Agent {
	return &Agent{server: server, name: name, allocated: map[string]apiserver.Entry{}, endpoints: map[string]string{}}
}

// Kill terminates the agent. Its endpoints stay.
func (a *Agent) Kill() { a.running = false }

// Start starts the agent. It may answer a mark before it has restored its endpoints; one that cannot
// have its address fails the test.
func (a *Agent) Start(t testing.TB) {
	t.Helper()
	a.running, a.allocated = true, map[string]apiserver.Entry{}
	a.Step(t)
	for ip, owner := range a.endpoints {
		entry, published := a.seen.Pool[ip]
		if !published || !crdagent.Allocatable(a.seen.Release[ip]) {
			t.Fatalf("the agent drops the endpoint of %s at its start: in the pool %v, handshake %q", ip, published, a.seen.Release[ip])
		}
		a.allocated[ip] = apiserver.Entry{Owner: owner + " [restored]", Resource: entry.Resource}
	}
	a.Step(t)
}

// Step is a step of the agent without pods: it reads the CiliumNode, answers the marks, and writes
// which addresses it uses, unless another client wrote since.
func (a *Agent) Step(t testing.TB) {
	t.Helper()
	if !a.running {
		return
	}
	n, there := a.server.Node(t, a.name)
	if !there {
		return
	}
	a.seen = n
	release := maps.Clone(n.Release)
	for ip, state := range n.Release {
		_, published := n.Pool[ip]
		_, allocated := a.allocated[ip]
		if release[ip] = crdagent.Answer(state, published, allocated); release[ip] == "" {
			delete(release, ip)
		}
	}
	a.seen.Release = release
	if !maps.Equal(release, n.Release) || !maps.Equal(a.allocated, n.Used) {
		a.server.UpdateStatus(a.name, n.Version, a.allocated, release)
	}
}

// Allocate allocates an address to a new pod, with dual one of each family, and reports whether there
// were enough.
func (a *Agent) Allocate(dual bool) bool {
	var chosen []string
	for _, is6 := range []bool{false, true} {
		if is6 && !dual {
			continue
		}
		ips := slices.DeleteFunc(a.available(), func(ip string) bool { return netip.MustParseAddr(ip).Is6() != is6 })
		if !a.running || len(ips) == 0 {
			return false
		}
		chosen = append(chosen, ips[0])
	}
	for _, ip := range chosen {
		owner := "default/pod-" + ip
		a.allocated[ip], a.endpoints[ip] = apiserver.Entry{Owner: owner, Resource: a.seen.Pool[ip].Resource}, owner
	}
	return true
}

// Free deletes the pods of these addresses.
func (a *Agent) Free(ips ...string) {
	for _, ip := range ips {
		delete(a.allocated, ip)
		delete(a.endpoints, ip)
	}
}

// Uses returns the addresses of its endpoints, in order.
func (a *Agent) Uses() []string { return slices.Sorted(maps.Keys(a.endpoints)) }

// available returns the addresses that it can allocate, in no fixed order.
func (a *Agent) available() []string {
	var ips []string
	for ip, e := range a.seen.Pool {
		if _, allocated := a.allocated[ip]; !allocated && e.Owner == "" && crdagent.Allocatable(a.seen.Release[ip]) {
			ips = append(ips, ip)
		}
	}
	return ips
}

// Check fails the test if the address of an endpoint is not in the pool: the next start of the agent
// would drop the endpoint.
func (a *Agent) Check(t testing.TB) {
	t.Helper()
	n, there := a.server.Node(t, a.name)
	if !there {
		return
	}
	for ip, owner := range a.endpoints {
		if _, published := n.Pool[ip]; !published {
			t.Fatalf("%s has an endpoint (%s) and is not in the pool", ip, owner)
		}
	}
}
