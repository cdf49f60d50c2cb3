package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// The router's addresses stay reserved until it allocates again, and host-local, whose store is
// new, allocates one of them to the first owner that does.
func TestLostStorePartlyTaken(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	router := s.Allocate(t, harness.Request{Owner: "router"}).Address
	health := s.Allocate(t, harness.Request{Owner: "health"}).Address
	s.Kill(t)
	n.WipeStore(t)
	n.LeaseToPod(t, "pods", router.IPv4)
	n.LeaseToPod(t, "pods", health.IPv6)

	s = n.Start(t)
	now := s.Allocate(t, harness.Request{Owner: "health"}).Address
	if now.IPv4 != health.IPv4 {
		t.Errorf("the owner had %s, which is free, and got %s", health.IPv4, now.IPv4)
	}
	s.AllocateFor(t, "router")
}

// Neither owner's IPv6 address is available. host-local continues after the address of the last
// ADD, so each request of health, which begins with its earlier addresses, gets the address that is
// reserved for the router.
func TestLostStoreNextReserved(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, "--verify-interval=0s")
	health := s.Allocate(t, harness.Request{Owner: "health"}).Address
	between := s.AllocateFor(t, "ingress")
	router := s.Allocate(t, harness.Request{Owner: "router"}).Address
	s.Release(t, health.IPv4)
	for _, ip := range between {
		s.Release(t, ip)
	}
	s.Stop(t)
	n.WipeStore(t)
	n.LeaseToPod(t, "pods", router.IPv6)
	n.LeaseToPod(t, "pods", health.IPv6)

	s = n.Start(t, "--verify-interval=0s")
	harness.Eventually(t, "both to be lost", func() error {
		for _, owner := range []string{"router", "health"} {
			if a := s.Attachment(t, owner); a == nil || !a.Lost {
				return fmt.Errorf("%s is %+v", owner, a)
			}
		}
		return nil
	})
	if now := s.AllocateFor(t, "health"); slices.Contains(now, router.IPv4) {
		t.Errorf("health got %v; %s is reserved for the router", now, router.IPv4)
	}
	a := s.Attachment(t, "router")
	if !slices.ContainsFunc(harness.Held([]harness.Attachment{*a}), func(l oracle.Listed) bool { return l.IP.String() == router.IPv4 }) {
		t.Errorf("the router has %+v; want %s", a.Addresses, router.IPv4)
	}
	s.AllocateFor(t, "router")
}

func TestLostStoreWhileStopped(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := map[string][]string{}
		for _, owner := range []string{"router", "health", "ingress"} {
			held[owner] = s.AllocateFor(t, owner)
		}
		s.Stop(t)
		n.WipeStore(t)

		s = n.Start(t)
		s.WaitConsistent(t)
		for _, ips := range held {
			wantDisjoint(t, s.AllocateFor(t, "new"), ips)
		}
		for owner, want := range held {
			wantLeased(t, n, want...)
			wantAddresses(t, s.AllocateFor(t, owner), want)
		}
	})
}
