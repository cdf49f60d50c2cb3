package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// removeLeases removes every file of host-local's network folder.
func removeLeases(t *testing.T, n *harness.Node) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(n.StoreDir, "pods", "*"))
	check.Must(t, err)
	for _, name := range names {
		check.Must(t, os.Remove(name))
	}
}

// waitLeased waits until the store has the addresses for a container.
func waitLeased(t *testing.T, n *harness.Node, id string, ips []string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("leases of %v for %s", ips, id), func() error {
		for _, ip := range ips {
			lease, err := os.ReadFile(filepath.Join(n.StoreDir, "pods", ip))
			if err != nil {
				return err
			}
			if !strings.HasPrefix(string(lease), id+"\r\neth0") {
				return fmt.Errorf("%s is leased to %q", ip, lease)
			}
		}
		return nil
	})
}

// The leases of containers that run are added again under their IDs, and no other pod gets their addresses.
//
//evidence:design/reliability the leases of running pods vanish
func TestLostContainerIsAddedAgain(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"at a start": true, "when another pod gets its address": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, pods := podNode(t)
			if !restart {
				n.Flags = append(n.Flags, hostLocalProgram) // the embedded one leaves out what an attachment has
			}
			s := n.Start(t)
			first, second := pods.Add(t, "first"), pods.Add(t, "second")
			if restart {
				s.Kill(t)
			}
			removeLeases(t, n)
			if restart {
				s = n.Start(t)
			}
			for _, id := range []string{"third", "fourth"} {
				var ips []string
				harness.Eventually(t, "ADD of "+id, func() (err error) { // a conflict fails it, and shows the loss
					ips, err = pods.TryAdd(id)
					return err
				})
				wantDisjoint(t, ips, first)
				wantDisjoint(t, ips, second)
			}
			waitLeased(t, n, "first", first)
			waitLeased(t, n, "second", second)
			s.WaitConsistent(t)
			call(t, pods, "DEL", "first")
			call(t, pods, "DEL", "second")
			wantIDs(t, n, "third", "fourth")
		})
	}
}

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
