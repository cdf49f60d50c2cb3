// Package agent imitates cilium-agent in ipam mode crd, as far as the CiliumNode
// shows it (docs/bridge.md, What the agent does). A test plays it step by step.
package agent

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
)

// Agent is one cilium-agent. What it does while it must not lose an endpoint,
// and what it would lose, fails the test.
type Agent struct {
	server *apiserver.Server
	name   string
	alive  bool
	// seen is the CiliumNode that it works with; endpoints are on its disk.
	seen      apiserver.Node
	allocated map[string]apiserver.Entry
	endpoints map[string]string
	foreign   map[string]bool
}

// New returns an agent of a node that is not running, and takes no address of
// the pool that is named here.
func New(server *apiserver.Server, name string, foreign ...string) *Agent {
	a := &Agent{server: server, name: name, allocated: map[string]apiserver.Entry{}, endpoints: map[string]string{}, foreign: map[string]bool{}}
	for _, ip := range foreign {
		a.foreign[ip] = true
	}
	return a
}

// Kill ends it; endpoints stay.
func (a *Agent) Kill() { a.alive = false }

// Start starts it. It may answer a mark before it has its endpoints back; one
// whose address it does not get is lost, which fails the test.
func (a *Agent) Start(t testing.TB) {
	t.Helper()
	a.alive, a.allocated = true, map[string]apiserver.Entry{}
	a.Step(t)
	for ip, owner := range a.endpoints {
		entry, published := a.seen.Pool[ip]
		if !published || !a.handsOut(ip) {
			t.Fatalf("the agent drops the endpoint of %s at its start: in the pool %v, handshake %q", ip, published, a.seen.Release[ip])
		}
		a.allocated[ip] = apiserver.Entry{Owner: owner + " [restored]", Resource: entry.Resource}
	}
	a.Step(t)
}

// Step is all that it does by itself: it takes note of the CiliumNode, answers
// marks, and writes what it uses, if nobody wrote since.
func (a *Agent) Step(t testing.TB) {
	t.Helper()
	if !a.alive {
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
		switch {
		case state == "marked-for-release" && (!published || allocated):
			release[ip] = "do-not-release"
		case state == "marked-for-release":
			release[ip] = "ready-for-release"
		case state == "released" && !published:
			delete(release, ip)
		}
	}
	a.seen.Release = release
	if !maps.Equal(release, n.Release) || !maps.Equal(a.allocated, n.Used) {
		a.server.UpdateStatus(a.name, n.Version, a.allocated, release)
	}
}

// Allocate gives a new pod an address, with dual stack one of each family; false
// if there are not enough.
func (a *Agent) Allocate(dual bool) bool {
	var chosen []string
	for _, is6 := range []bool{false, true}[:families(dual)] {
		ips := slices.DeleteFunc(a.available(), func(ip string) bool { return netip.MustParseAddr(ip).Is6() != is6 })
		if !a.alive || len(ips) == 0 {
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

func families(dual bool) int {
	if dual {
		return 2
	}
	return 1
}

// Free ends what has these addresses.
func (a *Agent) Free(ips ...string) {
	for _, ip := range ips {
		delete(a.allocated, ip)
		delete(a.endpoints, ip)
	}
}

// Uses returns the addresses that it uses, in order.
func (a *Agent) Uses() []string { return slices.Sorted(maps.Keys(a.endpoints)) }

// available are the addresses that it can hand out, in no fixed order.
func (a *Agent) available() []string {
	var ips []string
	for ip, e := range a.seen.Pool {
		if _, allocated := a.allocated[ip]; !allocated && e.Owner == "" && !a.foreign[ip] && a.handsOut(ip) {
			ips = append(ips, ip)
		}
	}
	return ips
}

// handsOut tells that no handshake keeps an address from being handed out.
func (a *Agent) handsOut(ip string) bool {
	state := a.seen.Release[ip]
	return state == "" || state == "do-not-release"
}

// Check fails the test if an endpoint's address is not in the pool: the next
// start of the agent would drop it.
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
