package faults

import (
	"fmt"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

const (
	clientCount = 64
	ownerCount  = 200
)

//evidence:design/reliability 64 clients concurrently on 200 owners
//evidence:design/reliability Guarantees
func TestConcurrentClients(t *testing.T) {
	runClients(t, sized(t, 300, 20_000), 0, nil)
}

//evidence:design/reliability the same, and the daemon is killed repeatedly
func TestConcurrentClientsAndKills(t *testing.T) {
	operations := sized(t, 900, 20_000)
	runClients(t, operations, max(5, operations/400), func(st *stats, n *harness.Node, s *harness.Daemon) *harness.Daemon {
		s.Kill(t)
		st.kills.Add(1)
		return n.Launch(t)
	})
}

//evidence:design/reliability the same, and one daemon hands over to the next (a rolling update)
func TestConcurrentClientsAndHandover(t *testing.T) {
	runClients(t, sized(t, 800, 20_000)/2, 4, func(_ *stats, n *harness.Node, s *harness.Daemon) *harness.Daemon {
		next := n.Launch(t)
		next.WaitLog(t, "waiting for the state directory")
		s.Stop(t)
		return next
	})
}

// runClients runs clients of a daemon that each event replaces by the next one.
func runClients(t *testing.T, operations, events int, event func(*stats, *harness.Node, *harness.Daemon) *harness.Daemon) {
	t.Parallel()
	st := newStats(t, concurrency)
	st.countCases(t, operations)
	n := fastNode(t)
	s := n.Launch(t)
	s.WaitReady(t)
	s.Release(t, s.AllocateFor(t, "first")...) // opens the files that stay open
	before := openFiles(t, s)

	c := newClients(s.Client, seed(t), ownerCount, operations, events)
	go c.run(clientCount)
	for range c.due {
		s = event(st, n, s)
		s.WaitServing(t)
	}
	c.checkHeld(t, n, s)
	c.allocateAll()
	s.WaitConsistent(t)
	c.check(t, n, s)
	if unanswered := c.count(oracle.Allocate, oracle.Unknown); events == 0 && unanswered > 0 {
		t.Errorf("%d allocates were not answered", unanswered)
	}
	if events == 0 {
		waitClosed(t, s, before)
	}
	last := s.List(t)
	s.Stop(t)
	n.WantJournal(t, last)
}

// fastNode returns a node with the scripted plugin, which is fast, and does not verify held addresses.
func fastNode(t *testing.T) *harness.Node {
	t.Helper()
	n, _ := scriptedNode(t, "host-local")
	n.WriteNetwork(t, "05-cilium", harness.DualStack())
	n.Flags = append(n.Flags, "--enable-ipv6=true", "--verify-interval=1h", "--log-level=warning")
	if size(t) == full {
		n.Program = harness.Failpoints(t) // without the race detector, which the sample uses
	}
	return n
}

// checkHeld waits until no attachment is in transition, and checks the invariants. It must run
// before allocateAll, which would hide an address that was released and is held again.
func (c *clients) checkHeld(t testing.TB, n *harness.Node, s *harness.Daemon) {
	t.Helper()
	harness.Eventually(t, "the recovery", func() error {
		for _, a := range s.List(t) {
			// A plugin of the previous run may still act for it.
			if a.State == "adding" || a.State == "releasing" {
				return fmt.Errorf("%s is still %s: %s", a.ContainerID, a.State, a.LastError)
			}
		}
		return nil
	})
	s.WaitConsistent(t)
	c.checkInvariants(t, n, s)
	released := len(c.finalReleases())
	t.Logf("%d releases were final", released)
	if released == 0 {
		t.Error("no release was final; the test proves nothing")
	}
}

// check fails the test for each response that is not linearizable, and for each violated invariant.
func (c *clients) check(t testing.TB, n *harness.Node, s *harness.Daemon) {
	t.Helper()
	for _, err := range c.unexpected {
		t.Error(err)
	}
	for _, v := range oracle.CheckOps(c.ops) {
		t.Error(v)
	}
	c.checkInvariants(t, n, s)
	for _, verb := range []oracle.Verb{oracle.Allocate, oracle.Restore, oracle.Release} {
		t.Logf("%s: %d done, %d refused, %d without a response", verb,
			c.count(verb, oracle.Done), c.count(verb, oracle.Refused), c.count(verb, oracle.Unknown))
		if c.count(verb, oracle.Done) == 0 {
			t.Errorf("no %s succeeded; the test proves nothing", verb)
		}
	}
}

// count returns the number of operations with an outcome.
func (c *clients) count(verb oracle.Verb, outcome oracle.Outcome) int {
	n := 0
	for _, op := range c.ops {
		if op.Verb == verb && op.Outcome == outcome {
			n++
		}
	}
	return n
}

// checkInvariants checks the addresses that every owner certainly holds, or has certainly released.
func (c *clients) checkInvariants(t testing.TB, n *harness.Node, s *harness.Daemon) {
	t.Helper()
	h := oracle.NewHistory()
	for _, op := range c.finalReleases() {
		h.Released(op.Owner, op.IPs...)
	}
	for _, o := range c.owners {
		for _, ip := range o.held {
			if ip.IsValid() {
				h.Allocated(o.name, ip)
			}
		}
	}
	for _, v := range h.Check(oracle.Snapshot{Stored: n.Leases(t), Listed: harness.Held(s.List(t))}) {
		t.Error(v)
	}
}

// finalReleases returns the successful releases after whose start no request for the address was pending.
func (c *clients) finalReleases() []oracle.Op {
	type part struct {
		owner  string
		family int
	}
	lastRequest := map[part]int64{}
	for _, op := range c.ops {
		for family, requested := range []bool{op.IPv4, op.IPv6} {
			if p := (part{op.Owner, family}); requested {
				lastRequest[p] = max(lastRequest[p], op.Ended)
			}
		}
	}
	var out []oracle.Op
	for _, op := range c.ops {
		if op.Verb == oracle.Release && op.Outcome == oracle.Done && op.Began > lastRequest[part{op.Owner, oracle.Family(op.IPs[0])}] {
			out = append(out, op)
		}
	}
	return out
}
