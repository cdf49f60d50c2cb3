package e2e

import (
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// In these tests host-local's store is restored from a backup while the daemon runs, or within the
// same boot. Nothing notifies the daemon, and CHECK proves only that its container ID has any lease.

// verifyingNode returns an IPv4 node whose daemon verifies at every request.
func verifyingNode(t *testing.T) *harness.Node {
	t.Helper()
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.0.0", Subnets: []string{"10.15.0.0/24"}})
	n.Flags = append(n.Flags, "--verify-interval=0s")
	return n
}

// Trap: in the restored store another container ID has the address of an attachment.
func TestRestoredStoreConflictingLease(t *testing.T) {
	t.Parallel()
	for name, occupy := range map[string]func(*testing.T, *harness.Node, *harness.Daemon) (ip string, release func()){
		"pod": func(t *testing.T, n *harness.Node, _ *harness.Daemon) (string, func()) {
			n.LeaseToPod(t, "pods", "10.15.0.9")
			return "10.15.0.9", func() { n.WipeStore(t) }
		},
		"other owner": func(t *testing.T, _ *harness.Node, s *harness.Daemon) (string, func()) {
			ip := s.AllocateFor(t, "health")[0]
			return ip, func() { s.Release(t, ip) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := verifyingNode(t)
			s := n.Start(t)
			ip, release := occupy(t, n, s)
			restore := n.BackUpStore(t)
			release()
			s.TryRestore(t, ip, "router").WantStatus(t, http.StatusOK)
			restore()

			// CHECK fails, and host-local does not allocate the address twice.
			now := s.AllocateFor(t, "router")[0]
			if now == ip {
				t.Fatalf("the owner still gets %s, which the plugin has leased to another", now)
			}
			s.WantCounters(t, map[string]int64{"lost": 1})
			other := s.AllocateFor(t, "health")[0]
			if other == now {
				t.Errorf("both owners have %s", now)
			}
			wantLeased(t, n, now, other)
			s.WaitConsistent(t)
		})
	}
}

// Trap: the backup has the container ID with another address. CHECK does not detect that; the
// lookup of the lease file does.
func TestRestoredStoreOlderAddress(t *testing.T) {
	t.Parallel()
	n := verifyingNode(t)
	s := n.Start(t)
	older := s.AllocateFor(t, "router")[0]
	restore := n.BackUpStore(t)
	s.Release(t, older)
	held := s.AllocateFor(t, "router")[0]
	if held == older {
		t.Fatalf("host-local allocated %s again; the test needs another address", held)
	}
	restore()

	wantAddresses(t, s.AllocateFor(t, "router"), []string{held})
	wantLeaseCount(t, n, 1)
	wantLeased(t, n, held)
	s.WantCounters(t, map[string]int64{"lost": 1, "reacquired": 1, "duplicates": 0})
	s.Release(t, held)
	s.WaitConsistent(t)
}
