package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestReleaseAll(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t, "--release-delay=1h")
		s.AllocateFor(t, "router")
		s.Allocate(t, harness.Request{Owner: "pod", Expire: true})
		s.Release(t, s.AllocateFor(t, "released")...)
		wantState(t, s, "released", "cooldown")

		wantCommand(t, n, command{line: "release --all --yes"})
		wantLeaseCount(t, n, 0)
		wantCommand(t, n, command{line: "list -o=json", stdout: "[]"})
	})
}

func TestSkipReleaseDelay(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	s := n.Start(t, "--release-delay=1h")
	ip := s.AllocateFor(t, "router")[0]
	wantCommand(t, n, command{line: "release " + ip})
	wantState(t, s, "router", "cooldown")
	wantCommand(t, n, command{line: "release " + ip, code: 1, stderr: "not allocated"})
	wantState(t, s, "router", "cooldown")
	wantCommand(t, n, command{line: "release " + ip + " --skip-release-delay"})
	wantLeaseCount(t, n, 0)
}

func TestReleaseAllWithoutConf(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.AllocateFor(t, "router")
	s.Stop(t)
	emptyDir(t, n.ConfDir)
	n.Launch(t)
	wantProbe(t, n, "ready", "no CNI configuration")
	wantCommand(t, n, command{line: "release --all --yes"})
	wantLeaseCount(t, n, 0)
}

func TestReleaseAllFails(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	s := n.Launch(t, "--enable-ipv6=false")
	s.WaitReady(t)
	for _, owner := range []string{"router", "health"} {
		s.AllocateFor(t, owner)
	}
	plugin.SetScript(t, "DEL", `{"error":{"cniVersion":"1.1.0","code":11,"msg":"the store is locked"}}`)
	out := n.Command(t, "release", "--all", "--yes", "--timeout=0s")
	if out.ExitCode != 1 {
		t.Errorf("the command ended with status %d; want 1", out.ExitCode)
	}
	_, left, _ := strings.Cut(out.Stderr, "2 attachments remain:\n")
	for _, owner := range []string{"router", "health"} {
		line := fmt.Sprintf("  %s of pool default (releasing, container ID %s): ", owner, s.Attachment(t, owner).ContainerID)
		if _, why, ok := strings.Cut(left, line); !ok || !strings.Contains(why, "the store is locked") {
			t.Errorf("what remains is %q; want a line that begins with %q and has the reason", left, line)
		}
	}
	plugin.ClearScript(t, "DEL")
	wantCommand(t, n, command{line: "release --all --yes"})
	wantCommand(t, n, command{line: "list -o=json", stdout: "[]"})
}
