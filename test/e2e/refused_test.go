package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// A plugin without a known profile that needs a pod refuses ADD and DEL until its profile is given.
func TestProfileCorrected(t *testing.T) {
	t.Parallel()
	ipam := ranges()
	ipam["keyedBy"], ipam["del"] = "pod", "needs-pod"
	n, plugin := scriptedNode(t, "needs-pod", ipam)
	s := n.Start(t, "--enable-ipv6=false")
	s.TryAllocate(t, harness.Request{Owner: "router"}).WantError(t, http.StatusBadGateway, "names no pod")
	wantCommand(t, n, command{line: "release --all --yes --timeout=0s", code: 1, stderr: "names no pod"})
	s.TryAllocate(t, harness.Request{Owner: "health"}).WantError(t, http.StatusBadGateway, "names no pod")
	s.Kill(t)

	right := strings.NewReplacer(`"host-local"`, `"needs-pod"`, `"podIdentity": "none"`, `"podIdentity": "synthetic"`).Replace(customProfile)
	s = n.Start(t, "--enable-ipv6=false", "--plugin-profile="+writeProfile(t, n, right))
	s.AllocateFor(t, "router")
	wantCommand(t, n, command{line: "release --all --yes --wait=1m"})
	wantCommand(t, n, command{line: "list -o=json", stdout: "[]"})
	wantHolds(t, plugin)
}
