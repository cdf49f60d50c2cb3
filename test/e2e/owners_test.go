package e2e

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestRetireOwners(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		kept := s.AllocateFor(t, "router")
		s.AllocateFor(t, "ingress")
		s.Stop(t)

		n.ResetHistory() // the release of ingress is intended
		s = n.Start(t, "--owners=router", "--retire-owners")
		waitReleased(t, s, "ingress")
		wantLeaseCount(t, n, len(kept))
		wantAddresses(t, s.AllocateFor(t, "router"), kept)
	})
}

func TestOwnerNoLongerAdmitted(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := s.AllocateFor(t, "ingress")
		s.Stop(t)

		s = n.Start(t, "--owners=router")
		s.TryAllocate(t, harness.Request{Owner: "ingress"}).WantStatus(t, 403)
		wantState(t, s, "ingress", "held")
		wantLeased(t, n, held...)
		s.Release(t, held...)
		wantLeaseCount(t, n, 0)
	})
}
