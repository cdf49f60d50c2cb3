package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestAllocateConcurrentlyForOneOwner(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	responses := s.AllocateConcurrently(t, slices.Repeat([]harness.Request{{Owner: "router"}}, 50))

	for _, r := range responses {
		wantAddresses(t, r.Allocation(t).Addresses(), responses[0].Allocation(t).Addresses())
	}
	wantLeaseCount(t, n, 2)
}

func TestAllocateSecondFamily(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	v4 := s.Allocate(t, harness.Request{Owner: "router", Family: "ipv4"})
	if got := v4.Addresses(); len(got) != 1 || !is4(got[0]) {
		t.Fatalf("family ipv4 answered %q; want one IPv4 address", got)
	}
	leases := n.Leases(t)

	v6 := s.Allocate(t, harness.Request{Owner: "router", Family: "ipv6"})
	if got := v6.Addresses(); len(got) != 1 || is4(got[0]) {
		t.Fatalf("family ipv6 answered %q; want one IPv6 address", got)
	}
	if now := n.Leases(t); !slices.Equal(now, leases) {
		t.Errorf("the plugin's store was %v and is %v; want no change", leases, now)
	}
	if got := s.Attachment(t, "router").Claims; !slices.Equal(slices.Sorted(slices.Values(got)), []string{"ipv4", "ipv6"}) {
		t.Errorf("claims are %q; want both families", got)
	}
}

func TestTwoPools(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-pods", harness.IPv4Only())
	n.WriteNetwork(t, "06-blue", harness.Network{Name: "blue", Subnets: []string{"10.16.0.0/24"}, CNIVersion: "1.0.0"})
	s := n.Start(t, "--enable-ipv6=false", "--pool=default=pods", "--pool=blue=blue")

	pods := s.Allocate(t, harness.Request{Owner: "router"})
	blue := s.Allocate(t, harness.Request{Owner: "router", Pool: "blue"})
	wantInSubnet(t, pods.Address.IPv4, "10.15.0.0/24")
	wantInSubnet(t, blue.Address.IPv4, "10.16.0.0/24")
	if pods.Address.IPv4PoolName != "default" || blue.Address.IPv4PoolName != "blue" {
		t.Errorf("pool names are %q and %q; want default and blue", pods.Address.IPv4PoolName, blue.Address.IPv4PoolName)
	}
	s.Do(t, "DELETE", "/v1/ipam/"+blue.Address.IPv4+"?pool=blue").WantStatus(t, 200)
	wantLeaseCount(t, n, 1)
}

// allocateConcurrently allocates for that many owners concurrently and returns the addresses of each.
func allocateConcurrently(t *testing.T, s *harness.Daemon, owners int) [][]string {
	t.Helper()
	requests := make([]harness.Request, owners)
	for i := range requests {
		requests[i].Owner = fmt.Sprintf("kube-system/pod-%d", i)
	}
	all := make([][]string, owners)
	for i, a := range s.AllocateConcurrently(t, requests) {
		all[i] = a.Allocation(t).Addresses()
	}
	return all
}

func is4(ip string) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.Is4()
}
