package e2e

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestLeavingTakesBackEverythingWhateverTheReleaseDelay(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t, "--release-delay=1h")
		s.Allocate(t, harness.Request{Owner: "router"})
		s.Allocate(t, harness.Request{Owner: "pod", Expire: true})
		s.Release(t, s.Allocate(t, harness.Request{Owner: "cools"}).Addresses()...)
		wantState(t, s, "cools", "cooling")

		ends(t, n, command{args: []string{"release", "--all", "--yes"}})
		wantLeases(t, n, 0)
		ends(t, n, command{args: []string{"list", "-o=json"}, stdout: "[]"})
	})
}

func TestOneAddressCanBeGivenBackBeforeItsDelayEnds(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	s := n.Start(t, "--release-delay=1h")
	ip := s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4
	ends(t, n, command{args: []string{"release", ip}})
	wantState(t, s, "router", "cooling")
	ends(t, n, command{args: []string{"release", ip}, code: 1, stderr: "not handed out"})
	wantState(t, s, "router", "cooling")
	ends(t, n, command{args: []string{"release", ip, "--skip-release-delay"}})
	wantLeases(t, n, 0)
}

func TestLeavingNeedsNoConfigurationAnyMore(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	s.Stop(t)
	clearFolder(t, n.ConfDir)
	n.Launch(t)
	wantProbe(t, n, "ready", "no CNI configuration")
	ends(t, n, command{args: []string{"release", "--all", "--yes"}})
	wantLeases(t, n, 0)
}

func TestLeavingNamesWhatThePluginDoesNotTakeBack(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", ranges())
	s := n.Launch(t, "--enable-ipv6=false")
	s.WaitReady(t)
	for _, owner := range []string{"router", "health"} {
		s.Allocate(t, harness.Request{Owner: owner})
	}
	plugin.Script(t, "DEL", `{"error":{"cniVersion":"1.1.0","code":11,"msg":"the store is locked"}}`)
	out := n.Command(t, "release", "--all", "--yes", "--timeout=0s")
	if out.Code != 1 {
		t.Errorf("it ended with status %d; want 1", out.Code)
	}
	last := out.Stderr[strings.LastIndex(strings.TrimSpace(out.Stderr), "\n")+1:]
	for _, says := range []string{"2 attachments remain", "router", "health", s.Of(t, "router").ContainerID, "the store is locked"} {
		if !strings.Contains(last, says) {
			t.Errorf("the last line is %q; want it to say %q", last, says)
		}
	}
	plugin.Unscript(t, "DEL")
	ends(t, n, command{args: []string{"release", "--all", "--yes"}})
	ends(t, n, command{args: []string{"list", "-o=json"}, stdout: "[]"})
}
