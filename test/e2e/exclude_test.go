package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// host-local's range begins with the node's own addresses: embedded, it skips them; as a program, it returns them,
// and the request fails until it returns others.
func TestExcludeAddresses(t *testing.T) {
	t.Parallel()
	const excluded = "--exclude-addresses=10.15.0.2,fd00:15::2/127"
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, excluded)
	router, health := s.AllocateFor(t, "router"), s.AllocateFor(t, "health")
	wantAddresses(t, router, []string{"10.15.0.3", "fd00:15::4"})
	wantAddresses(t, health, []string{"10.15.0.4", "fd00:15::5"})
	s.TryRestore(t, "10.15.0.2", "ingress").WantError(t, http.StatusInternalServerError, "10.15.0.2 is excluded")

	// After a kill they are held as before, and an owner keeps what is excluded later.
	s.Kill(t)
	s = n.Start(t, excluded, "--exclude-addresses="+router[0])
	wantAddresses(t, s.AllocateFor(t, "router"), router)
	s.Stop(t)

	s = n.Start(t, "--host-local=program", "--exclude-addresses=10.15.0.5")
	s.TryAllocate(t, harness.Request{Owner: "ingress"}).WantError(t, http.StatusBadGateway, "10.15.0.5", "exclude it in the plugin's configuration, too")
	wantAddresses(t, s.AllocateFor(t, "ingress"), []string{"10.15.0.6", "fd00:15::7"})
	s.Release(t, slices.Concat(router, health, []string{"10.15.0.6", "fd00:15::7"})...)
	wantLeaseCount(t, n, 0)
}

// The leases vanish: embedded host-local gives no other owner an address that an attachment has, so the owners get them
// again, in any order of their requests.
func TestReservedAddresses(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, "--verify-interval=0s")
	router, health := s.AllocateFor(t, "router"), s.AllocateFor(t, "health")
	check.Must(t, os.RemoveAll(filepath.Join(n.StoreDir, "pods")))
	wantAddresses(t, s.AllocateFor(t, "ingress"), []string{"10.15.0.4", "fd00:15::4"})
	wantAddresses(t, s.AllocateFor(t, "health"), health)
	wantAddresses(t, s.AllocateFor(t, "router"), router)
	s.WaitConsistent(t)
}
