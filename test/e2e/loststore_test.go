package e2e

import (
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

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
