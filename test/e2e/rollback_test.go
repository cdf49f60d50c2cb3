package e2e

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// After a rollback the plugin itself adds a container ID again. The daemon, which has the ID's earlier
// addresses, must not free the new ones.
//
//evidence:design/reliability the same container ID is added by the plugin after a rollback
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
			n.Store = withoutPods // the daemon lists no pod any more
		})
	}
}

// The same for a container whose lost lease the daemon could not add again: another ID has its address.
//
//evidence:design/reliability the same container ID is added by the plugin after a rollback
func TestRollbackOfLostContainer(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"running": false, "restart": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t)
			nw := harness.IPv4Only()
			through := n.PodsThrough(t, "10-pods", nw)
			n.Flags = []string{"--enable-ipv6=false"}
			s := n.Start(t)
			ips := through.Add(t, "web")
			s.Kill(t)
			removeLeases(t, n)
			n.LeaseToPod(t, "pods", ips[0])
			s = n.Start(t)
			s.WaitLog(t, "Background work failed", "web")

			n.WriteNetwork(t, "10-pods", nw)
			bare := n.PodsOf(t, nw)
			again := bare.Add(t, "web")
			if restarts {
				s.Kill(t)
				s = n.Start(t)
			}
			waitReleased(t, s, "cni/web/eth0")
			waitLeased(t, n, "web", again)
			wantDisjoint(t, bare.Add(t, "other"), again)
		})
	}
}
