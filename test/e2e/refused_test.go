package e2e

import (
	"net/http"
	"os/exec"
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

func TestDiscard(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	s := n.Start(t, "--enable-ipv6=false")
	held := s.AllocateFor(t, "default/web")
	plugin.SetScript(t, "DEL", `{"error":{"code":999,"msg":"the server does not exist"}}`)
	wantCommand(t, n, command{line: "release --all --yes --timeout=0s", code: 1, stderr: "release --discard OWNER --yes"})
	wantCommand(t, n, command{line: "release --discard default/web", code: 2, stderr: "--yes"})
	id := s.Attachment(t, "default/web").ContainerID
	out := n.Command(t, "release", "--discard", "default/web", "--yes")
	for _, part := range []string{"discarded default/web of pool default", "container ID " + id + ", interface eth0, network pods, plugin scripted\n"} {
		if out.ExitCode != 0 || !strings.Contains(out.Stdout, part) {
			t.Errorf("status %d, %s%s; want 0 and %q", out.ExitCode, out.Stdout, out.Stderr, part)
		}
	}
	wantNoAttachment(t, s, "default/web")
	wantHolds(t, plugin, held...)
	s.Stop(t)
	wantUninstall(t, n, 0)

	// The printed command releases what was left.
	plugin.ClearScript(t, "DEL")
	_, del, _ := strings.Cut(out.Stdout, "  run: ")
	if text, err := exec.Command("sh", "-c", del).CombinedOutput(); err != nil {
		t.Errorf("%s: %v, %s", del, err, text)
	}
	wantHolds(t, plugin)
}
