package e2e

import (
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
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
		a := s.TryAllocate(t, harness.Request{Owner: "new"}) // before the store has the held addresses again
		for _, ips := range held {
			if a.Status == http.StatusCreated {
				wantDisjoint(t, a.Allocation(t).Addresses(), ips)
			}
		}
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
