package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// host-local's range begins with the node's own addresses.
func TestExcludeAddresses(t *testing.T) {
	t.Parallel()
	const excluded = "--exclude-addresses=10.15.0.2,fd00:15::4/127"
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, excluded)
	router := s.AllocateFor(t, "router")
	health := s.AllocateFor(t, "health")
	for _, ip := range slices.Concat(router, health) {
		if slices.Contains([]string{"10.15.0.2", "fd00:15::4", "fd00:15::5"}, ip) {
			t.Errorf("router has %q, health %q; want no excluded address", router, health)
		}
	}
	a := s.Attachment(t, "excluded:10.15.0.2")
	if a == nil || a.State != "held" || len(a.Claims) != 0 || a.ContainerID == s.Attachment(t, "router").ContainerID {
		t.Fatalf("the list has %+v; want a held attachment without claims", a)
	}
	wantLeased(t, n, "10.15.0.2")
	if out := n.Command(t, "list"); !strings.Contains(out.Stdout, "excluded: no owner gets it") {
		t.Errorf("list printed\n%s", out.Stdout)
	}
	if got, want := sum(scrape(t, s), "delegated_ipam_excluded_attachments"), float64(len(s.List(t))-2); got != want {
		t.Errorf("%v excluded attachments are counted; want %v", got, want)
	}

	s.TryRestore(t, "10.15.0.2", "ingress").WantError(t, http.StatusInternalServerError, "10.15.0.2 is excluded")
	s.TryAllocate(t, harness.Request{Owner: "excluded:10.15.0.2"}).WantStatus(t, http.StatusForbidden)

	// After a kill they are held as before, and an owner keeps what is excluded later.
	s.Kill(t)
	s = n.Start(t, excluded, "--exclude-addresses="+router[0])
	wantAddresses(t, s.AllocateFor(t, "router"), router)
	wantState(t, s, "excluded:10.15.0.2", "held")
	s.Stop(t)

	s = n.Start(t, "--exclude-addresses=fd00:15::4/127")
	waitReleased(t, s, "excluded:10.15.0.2")
	s.Release(t, slices.Concat(router, health)...)
	if out := n.Command(t, "gc", "--owner=excluded:*", "--yes"); out.ExitCode != 0 {
		t.Errorf("gc: status %d, %s", out.ExitCode, out.Stderr)
	}
	wantLeaseCount(t, n, 0)
}
