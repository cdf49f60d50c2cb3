package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
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

// The record of an owner whose release is refused forever is deleted while the daemon is stopped.
func TestJournalDelete(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	s := n.Start(t, "--enable-ipv6=false")
	held := s.AllocateFor(t, "default/web")
	plugin.SetScript(t, "DEL", `{"error":{"code":999,"msg":"the server does not exist"}}`)
	wantCommand(t, n, command{line: "release --all --yes --timeout=0s", code: 1, stderr: "journal delete OWNER --yes"})
	dir := " --state-dir=" + n.StateDir
	wantCommand(t, n, command{line: "journal list" + dir, stdout: "default/web"})
	wantCommand(t, n, command{line: "journal delete default/web --yes" + dir, code: 1, stderr: "stop the daemon"})
	id := s.Attachment(t, "default/web").ContainerID
	copied := filepath.Join(n.Dir, "copy", "journal.db")
	check.Must(t, os.Mkdir(filepath.Dir(copied), 0o700))
	wantCommand(t, n, command{line: "journal backup " + copied + dir, stdout: "copied 1 records"})
	s.Stop(t)
	wantCommand(t, n, command{line: "journal delete default/web --yes" + dir, stdout: "container ID " + id + ", interface eth0, network pods, plugin scripted"})
	wantCommand(t, n, command{line: "journal list -o=json" + dir, stdout: `"records": []`})
	wantCommand(t, n, command{line: "journal list --state-dir=" + filepath.Dir(copied), stdout: id})
	wantHolds(t, plugin, held...)
	n.ResetHistory()
	s = n.Start(t, "--enable-ipv6=false")
	wantNoAttachment(t, s, "default/web")
	s.Stop(t)
	wantUninstall(t, n, 0)
}
