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

// While another ID has the address in the store, the container's stays reserved, and is lost.
//
//evidence:design/reliability the leases of running pods vanish
func TestLostContainerStaysReserved(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	pods := n.PodsThrough(t, "10-pods", harness.IPv4Only())
	n.Flags = []string{"--enable-ipv6=false"}
	s := n.Start(t)
	ips := pods.Add(t, "first")
	s.Kill(t)
	removeLeases(t, n)
	store := n.Store
	n.LeaseToPod(t, "pods", ips[0])
	n.Store = store // with the leases of pods
	s = n.Start(t)
	harness.Eventually(t, "the container to be lost", func() error {
		if a := s.Attachment(t, "cni/first/eth0"); a == nil || !a.Lost {
			return fmt.Errorf("the attachment is %+v", a)
		}
		return nil
	})
	check.Must(t, os.Remove(filepath.Join(n.StoreDir, "pods", ips[0]))) // the other one ends
	wantDisjoint(t, pods.Add(t, "second"), ips)
	waitLeased(t, n, "first", ips)
	call(t, pods, "DEL", "first")
	wantNoAttachment(t, s, "cni/first/eth0")
}
