package e2e

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The router's addresses are reserved as long as it has not asked, and host-local,
// whose store is new, offers one of them to the owner that asks first.
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
	s.Allocate(t, harness.Request{Owner: "router"})
}
