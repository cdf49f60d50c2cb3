package e2e

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// After a rollback the plugin itself adds a container ID again. The sidecar, which has the ID's earlier
// addresses, must not free the new ones.
func TestRollbackAndReusedID(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]func(*testing.T, *harness.Node){
		"restart":      func(*testing.T, *harness.Node) {},
		"reboot":       func(t *testing.T, n *harness.Node) { n.Reboot(t) },
		"rolled forth": func(t *testing.T, n *harness.Node) { n.PodsThrough(t, "10-pods", harness.DualStack()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t)
			nw := harness.DualStack()
			through := n.PodsThrough(t, "10-pods", nw)
			s := n.Start(t)
			through.Add(t, "web")

			n.WriteNetwork(t, "10-pods", nw)
			store := n.Store
			bare := n.PodsOf(t, nw)
			withoutPods := n.Store
			n.Store = store
			call(t, bare, "DEL", "web")
			again := bare.Add(t, "web")
			s.Stop(t)
			event(t, n)
			s = n.Start(t)
			waitReleased(t, s, "cni/web/eth0")
			wantIDs(t, n, "web")
			wantDisjoint(t, bare.Add(t, "other"), again)
			n.Store = withoutPods // the sidecar lists no pod any more
		})
	}
}
