package e2e

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// failingCheckHostLocal is the real host-local whose CHECK fails while "$0.fail-check" exists.
const failingCheckHostLocal = `#!/bin/sh
if [ "$CNI_COMMAND" = CHECK ] && [ -e "$0.fail-check" ]; then
  cat >/dev/null
  echo '{"cniVersion":"1.0.0","code":11,"msg":"try again later"}'
  exit 1
fi
exec "$0.real"
`

func TestDuplicateAfterStoreLoss(t *testing.T) {
	builtIn, err := os.ReadFile("../../internal/plugin/profile/profiles/host-local.json")
	check.Must(t, err)
	byCheck := strings.Replace(string(builtIn), `"host-local-leases"`, `"none"`, 1)
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		n.Flags = append(n.Flags, "--plugin-profile="+writeProfile(t, n, byCheck), "--verify-interval=0s")
		s := n.Start(t)
		held := s.AllocateFor(t, "router")
		s.Stop(t)
		n.WipeStore(t)
		failCheck := n.WrapPlugin(t, "host-local", failingCheckHostLocal) + ".fail-check"
		check.Must(t, os.WriteFile(failCheck, nil, 0o644))

		// The plugin allocates from its first address again. The router's address cannot be
		// verified, so only the journal knows its owner.
		s = n.Start(t)
		a := s.TryAllocate(t, harness.Request{Owner: "health"})
		a.WantError(t, http.StatusBadGateway, held[0], "router", "ours was released")
		wantLeaseCount(t, n, 0)
		if c := s.Health(t).DelegatedIPAM.Counters; c["duplicates"] == 0 {
			t.Errorf("counters are %v; want a duplicate", c)
		}

		check.Must(t, os.Remove(failCheck))
		wantAddresses(t, s.AllocateFor(t, "router"), held)
		wantDisjoint(t, s.AllocateFor(t, "health"), held)
		wantLeaseCount(t, n, 2*len(held))
	})
}

// The range of one of two families is full.
func TestRangeExhausted(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.0.0", Subnets: []string{"fd00:15::/112", "10.15.0.0/30"}})
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	a := s.TryAllocate(t, harness.Request{Owner: "health"})
	a.WantError(t, http.StatusBadGateway, "no IP addresses available", "10.15.0.1-10.15.0.2", "health")
	wantLeaseCount(t, n, len(held))
	wantNoAttachment(t, s, "health")
	wantAddresses(t, s.AllocateFor(t, "router"), held)
	s.Release(t, held...)
	if got := s.AllocateFor(t, "health"); len(got) != len(held) {
		t.Errorf("after a release the other owner got %q; want the released addresses", got)
	}
}

func TestSecondRangeOfSet(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.0.0", Subnets: []string{"one set"}, IPAM: map[string]any{
		"ranges": [][]map[string]string{{{"subnet": "10.15.0.0/30"}, {"subnet": "10.16.0.0/24"}}},
	}})
	s := n.Start(t)
	wantInSubnet(t, s.AllocateFor(t, "router")[0], "10.15.0.0/30")
	second := s.Allocate(t, harness.Request{Owner: "health"})
	wantInSubnet(t, second.Address.IPv4, "10.16.0.0/24")
	if second.IPv4.Gateway != "10.16.0.1" {
		t.Errorf("the gateway is %s; want that of the second range", second.IPv4.Gateway)
	}
}

func TestTwoRangeSetsOfOneFamily(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.0.0", Subnets: []string{"10.15.0.0/24", "10.16.0.0/24"}})
	s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
	got := s.Allocate(t, harness.Request{Owner: "router"})
	wantInSubnet(t, got.Address.IPv4, "10.16.0.0/24") // the last one, as in cilium-cni
	wantLeaseCount(t, n, 2)
	wantAddresses(t, s.AllocateFor(t, "router"), got.Addresses())
	s.Release(t, got.Addresses()...)
	wantLeaseCount(t, n, 0)
}

func TestIPv6Only(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Subnets: []string{"fd00:15::/112"}})
	n.Flags = []string{"--enable-ipv4=false"}
	checkLifecycle(t, n, "--verify-interval=0s")
}

func TestHostLocalOfPlugins14(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		n.InstallOldHostLocal(t)
		s := checkLifecycle(t, n, "--verify-interval=0s")
		if got := s.Health(t).DelegatedIPAM.Pools[0].CNIVersion; got != "1.0.0" {
			t.Errorf("the CNI version is %s; want 1.0.0, its highest", got)
		}
	})
}

// checkLifecycle allocates, verifies, restarts, reacquires and releases.
func checkLifecycle(t *testing.T, n *harness.Node, flags ...string) *harness.Sidecar {
	t.Helper()
	s := n.Start(t, flags...)
	held := s.AllocateFor(t, "router")
	s.TryRestore(t, held[0], "router").WantStatus(t, http.StatusOK)
	wantAddresses(t, s.AllocateFor(t, "router"), held)
	s.Kill(t)

	s = n.Start(t, flags...)
	wantAddresses(t, s.AllocateFor(t, "router"), held)
	n.WipeStore(t)
	wantAddresses(t, s.AllocateFor(t, "router"), held)
	wantLeased(t, n, held...)
	if c := s.Health(t).DelegatedIPAM.Counters; c["lost"] == 0 || c["reacquired"] == 0 {
		t.Errorf("counters are %v; want the loss found by CHECK and reacquired", c)
	}
	s.Release(t, held...)
	wantLeaseCount(t, n, 0)
	return s
}
