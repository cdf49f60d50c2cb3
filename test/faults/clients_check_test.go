package faults

import (
	"fmt"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// history returns the addresses that every owner certainly holds, or has certainly released.
func (c *clients) history() *oracle.History {
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
	return h
}

// finalReleases returns the successful releases after whose start no operation could have
// allocated the address again.
func (c *clients) finalReleases() []oracle.Op {
	type part struct {
		owner  string
		family int
	}
	lastRequest := map[part]int64{}
	for _, op := range c.ops {
		for _, f := range requestedFamilies(op) {
			p := part{op.Owner, f}
			lastRequest[p] = max(lastRequest[p], op.Ended)
		}
	}
	var out []oracle.Op
	for _, op := range c.ops {
		if op.Verb == oracle.Release && op.Outcome == oracle.Done && op.Began > lastRequest[part{op.Owner, familyOf(op.IPs[0])}] {
			out = append(out, op)
		}
	}
	return out
}

// requestedFamilies returns the families of which an operation may allocate an address.
func requestedFamilies(op oracle.Op) []int {
	switch {
	case op.Verb == oracle.Release:
		return nil
	case op.Verb == oracle.Restore:
		return []int{familyOf(op.IPs[0])}
	case op.IPv4 && op.IPv6:
		return []int{0, 1}
	case op.IPv6:
		return []int{1}
	default:
		return []int{0}
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

// checkHeld waits until no attachment is in transition, and checks the invariants. It must run
// before allocateAll, which would hide an address that was released and is held again.
func (c *clients) checkHeld(t testing.TB, n *harness.Node, s *harness.Sidecar) {
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
	for _, v := range c.history().Check(oracle.Snapshot{Stored: n.Leases(t), Listed: harness.Held(s.List(t))}) {
		t.Error(v)
	}
	released := len(c.finalReleases())
	t.Logf("%d releases were final", released)
	if released == 0 {
		t.Error("no release was final; the test proves nothing")
	}
}

// check fails the test for each response that is not linearizable, and for each violated invariant.
func (c *clients) check(t testing.TB, n *harness.Node, s *harness.Sidecar) {
	t.Helper()
	for _, u := range c.unexpected {
		t.Error(u)
	}
	for _, v := range oracle.CheckOps(c.ops) {
		t.Error(v)
	}
	for _, v := range c.history().Check(oracle.Snapshot{Stored: n.Leases(t), Listed: harness.Held(s.List(t))}) {
		t.Error(v)
	}
	for _, verb := range []oracle.Verb{oracle.Allocate, oracle.Restore, oracle.Release} {
		t.Logf("%s: %d done, %d refused, %d without a response", verb,
			c.count(verb, oracle.Done), c.count(verb, oracle.Refused), c.count(verb, oracle.Unknown))
		if c.count(verb, oracle.Done) == 0 {
			t.Errorf("no %s succeeded; the test proves nothing", verb)
		}
	}
}
