package e2e

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestOwnerNoLongerAdmitted(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		kept, held := s.AllocateFor(t, "kube-system/pod"), s.AllocateFor(t, "ingress")
		s.Stop(t)

		s = n.Start(t, "--owners=router,kube-system/*")
		wantRefusals(t, n, s, map[string]badRequest{
			"allocate":      {"POST", "/v1/ipam?owner=ingress", 403, nil},
			"restore":       {"POST", "/v1/ipam/10.15.0.9?owner=ingress", 403, nil},
			"empty owner":   {"POST", "/v1/ipam", 403, nil},
			"similar owner": {"POST", "/v1/ipam?owner=routers", 403, nil},
		})
		wantState(t, s, "ingress", "held")
		wantLeased(t, n, held...)
		wantAddresses(t, s.AllocateFor(t, "kube-system/pod"), kept)
		s.Stop(t)

		n.ResetHistory() // the release of ingress is intended
		s = n.Start(t, "--owners=router,kube-system/*", "--retire-owners")
		waitReleased(t, s, "ingress")
		wantLeaseCount(t, n, len(kept))
		wantAddresses(t, s.AllocateFor(t, "kube-system/pod"), kept)
	})
}
