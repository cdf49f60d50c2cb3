package faults

import (
	"net/http"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
)

func TestGCListsAnAnonymousAttachmentWhoseResponseACrashPrevented(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenario{})
	s.start()
	s.lay(failpoint.Plan{Point: failpoint.AnswerDue, Visit: 1})
	if a, err := s.sidecar.Try(http.MethodPost, "/v1/ipam"); err == nil {
		t.Fatalf("got the response %s; want the sidecar killed before it", a)
	}
	s.sidecar.Wait(t)
	s.clear()
	s.start()
	if n := len(s.node.Leases(t)); n != 2 {
		t.Fatalf("the plugin holds %d addresses; want one of each family", n)
	}
	gc := []string{"gc", "--owner=anonymous/*", "--older-than=1ns"}
	if out := s.node.Command(t, gc...); out.ExitCode != 0 || !strings.Contains(out.Stdout, "anonymous/") {
		t.Errorf("gc ended with %d and printed %q; want the attachment listed", out.ExitCode, out.Stdout)
	}
	if out := s.node.Command(t, append(gc, "--yes")...); out.ExitCode != 0 {
		t.Errorf("gc --yes ended with %d: %s", out.ExitCode, out.Stderr)
	}
	if n := len(s.node.Leases(t)); n != 0 {
		t.Errorf("the plugin holds %d addresses after gc --yes; want none", n)
	}
}
