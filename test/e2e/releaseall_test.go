package e2e

import (
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
