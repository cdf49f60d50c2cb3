package e2e

import (
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The name of the default pool changes: every attachment is found under the new one.
func TestDefaultPoolRenamed(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := s.AllocateFor(t, "router")
		for _, name := range []string{"blue", "default"} {
			s.Stop(t)
			s = n.Start(t, "--ipam-default-ip-pool="+name)
			for _, pool := range []string{name, "", "default"} {
				a := s.Allocate(t, harness.Request{Owner: "router", Pool: pool})
				wantAddresses(t, a.Addresses(), held)
				if got := a.Address.IPv4PoolName; got != name {
					t.Errorf("requested from pool %q, the answer names %q; want %q", pool, got, name)
				}
			}
			for _, a := range s.List(t) {
				if a.Pool != name {
					t.Errorf("%s is listed in pool %q; want %q", a.Owner, a.Pool, name)
				}
			}
			s.TryAllocate(t, harness.Request{Owner: "router", Pool: "green"}).WantStatus(t, http.StatusBadGateway)
			wantLeased(t, n, held...)
		}
		s.Release(t, held...)
		wantLeaseCount(t, n, 0)
	})
}
