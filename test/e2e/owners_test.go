package e2e

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestRetireOwners(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		kept := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		s.Allocate(t, harness.Request{Owner: "ingress"})
		s.Stop(t)

		n.ResetHistory() // what ingress was told is taken back on purpose
		s = n.Start(t, "--owners=router", "--retire-owners")
		wantGone(t, s, "ingress")
		wantLeases(t, n, len(kept))
		wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), kept)
	})
}

func TestOwnerNoLongerAdmitted(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := s.Allocate(t, harness.Request{Owner: "ingress"}).Addresses()
		s.Stop(t)

		s = n.Start(t, "--owners=router")
		s.TryAllocate(t, harness.Request{Owner: "ingress"}).WantStatus(t, 403)
		wantState(t, s, "ingress", "held")
		wantLeased(t, n, held...)
		s.Release(t, held...)
		wantLeases(t, n, 0)
	})
}
