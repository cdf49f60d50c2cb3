package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// failingCheckHostLocal is the real host-local behind a door: while the file "moody"
// is beside it, CHECK cannot be asked.
const failingCheckHostLocal = `#!/bin/sh
if [ "$CNI_COMMAND" = CHECK ] && [ -e "$0.moody" ]; then
  cat >/dev/null
  echo '{"cniVersion":"1.0.0","code":11,"msg":"try again later"}'
  exit 1
fi
exec "$0.real"
`

func TestDuplicateAfterStoreLoss(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t, "--verify-interval=0s")
		held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		s.Stop(t)
		n.WipeStore(t)
		mood := installFailingCheck(t, n)

		// The plugin knows of nothing and begins anew; the router's address cannot
		// be asked about, so the journal alone says whose it is.
		s = n.Start(t, "--verify-interval=0s")
		a := s.TryAllocate(t, harness.Request{Owner: "health"})
		for _, says := range []string{held[0], "router", "ours was released"} {
			if a.Status != http.StatusBadGateway || !strings.Contains(string(a.Body), says) {
				t.Errorf("answered %s; want 502 and %q", a, says)
			}
		}
		wantLeases(t, n, 0)
		if c := s.Health(t).DelegatedIPAM.Counters; c["duplicates"] == 0 {
			t.Errorf("the counters are %v; want a duplicate", c)
		}

		harness.Must(t, os.Remove(mood))
		wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
		for _, ip := range s.Allocate(t, harness.Request{Owner: "health"}).Addresses() {
			if slices.Contains(held, ip) {
				t.Errorf("both owners have %s", ip)
			}
		}
		wantLeases(t, n, 2*len(held))
	})
}

// installFailingCheck puts moodyHostLocal in host-local's place, out of mood, and
// returns the file that makes it so.
func installFailingCheck(t *testing.T, n *harness.Node) string {
	t.Helper()
	plugin := filepath.Join(n.BinDir, "host-local")
	harness.Must(t, os.Rename(plugin, plugin+".real"))
	n.InstallScript(t, "host-local", failingCheckHostLocal)
	harness.Must(t, os.WriteFile(plugin+".moody", nil, 0o644))
	return plugin + ".moody"
}

func TestOtherOwnerAfterStoreLoss(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		s.Kill(t)
		n.WipeStore(t)

		s = n.Start(t)
		a := s.TryAllocate(t, harness.Request{Owner: "health"})
		if a.Status == http.StatusCreated {
			for _, ip := range a.Allocation(t).Addresses() {
				if slices.Contains(held, ip) {
					t.Errorf("both owners have %s", ip)
				}
			}
		}
		wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	})
}

func TestRangeExhausted(t *testing.T) {
	tests := map[string]harness.Network{
		"the only range":      {Name: "pods", CNIVersion: "1.0.0", Subnets: []string{"10.15.0.0/30"}},
		"the second of two":   {Name: "pods", CNIVersion: "1.0.0", Subnets: []string{"fd00:15::/112", "10.15.0.0/30"}},
		"CNI 0.3.1, no CHECK": {Name: "pods", CNIVersion: "0.3.1", Subnets: []string{"10.15.0.0/30"}},
	}
	for name, nw := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, nw)
			s := n.Start(t)
			held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
			a := s.TryAllocate(t, harness.Request{Owner: "health"})
			for _, says := range []string{"no IP addresses available", "10.15.0.1-10.15.0.2", "health"} {
				if a.Status != http.StatusBadGateway || !strings.Contains(string(a.Body), says) {
					t.Errorf("answered %s; want 502 and %q", a, says)
				}
			}
			wantLeases(t, n, len(held))
			wantLeased(t, n, held...)
			if s.Attachment(t, "health") != nil {
				t.Errorf("the refused owner is in the list: %+v", s.List(t))
			}
			wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)

			s.Release(t, held...)
			if got := s.Allocate(t, harness.Request{Owner: "health"}).Addresses(); len(got) != len(held) {
				t.Errorf("after a release the other owner got %q; want what is free again", got)
			}
		})
	}
}

func TestSecondRangeOfSet(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.0.0", Subnets: []string{"one set"}, IPAM: map[string]any{
		"ranges": [][]map[string]string{{{"subnet": "10.15.0.0/30"}, {"subnet": "10.16.0.0/24"}}},
	}})
	s := n.Start(t)
	wantInSubnet(t, s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4, "10.15.0.0/30")
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
	wantInSubnet(t, got.Address.IPv4, "10.16.0.0/24") // the last one, as cilium-cni does
	wantLeases(t, n, 2)
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), got.Addresses())
	s.Release(t, got.Addresses()...)
	wantLeases(t, n, 0)
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
			t.Errorf("the CNI version is %s; want 1.0.0, the highest that this one knows", got)
		}
	})
}

// checkLifecycle allocates, verifies, restarts, reacquires and releases.
func checkLifecycle(t *testing.T, n *harness.Node, flags ...string) *harness.Sidecar {
	t.Helper()
	s := n.Start(t, flags...)
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	s.TryRestore(t, held[0], "router").WantStatus(t, http.StatusOK)
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	s.Kill(t)

	s = n.Start(t, flags...)
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	n.WipeStore(t)
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	wantLeased(t, n, held...)
	if c := s.Health(t).DelegatedIPAM.Counters; c["lost"] == 0 || c["reacquired"] == 0 {
		t.Errorf("the counters are %v; want the wiped store noticed by CHECK and reacquired", c)
	}
	s.Release(t, held...)
	wantLeases(t, n, 0)
	return s
}
