package faults

import (
	"net/http"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)

func TestAnonymousOwnerAfterCrash(t *testing.T) {
	t.Parallel()
	f := newFixture(t, scenario{})
	f.start()
	f.setPlan(failpoint.Plan{Point: failpoint.ResponseDue, Visit: 1})
	if a, err := f.sidecar.Try(http.MethodPost, "/v1/ipam"); err == nil {
		t.Fatalf("got the response %s; want the sidecar killed before it", a)
	}
	f.sidecar.Wait(t)
	f.clearPlan()
	f.start()
	if n := len(f.node.Leases(t)); n != 2 {
		t.Fatalf("the plugin has %d leases; want one of each family", n)
	}
	gc := []string{"gc", "--owner=anonymous/*", "--older-than=1ns"}
	if out := f.node.Command(t, gc...); out.ExitCode != 0 || !strings.Contains(out.Stdout, "anonymous/") {
		t.Errorf("gc ended with %d and printed %q; want the attachment listed", out.ExitCode, out.Stdout)
	}
	if out := f.node.Command(t, append(gc, "--yes")...); out.ExitCode != 0 {
		t.Errorf("gc --yes ended with %d: %s", out.ExitCode, out.Stderr)
	}
	if n := len(f.node.Leases(t)); n != 0 {
		t.Errorf("the plugin has %d leases after gc --yes; want none", n)
	}
}
