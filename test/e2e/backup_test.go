package e2e

import (
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The store of host-local is restored from a backup while the sidecar runs, or
// within the same boot: nothing tells the sidecar, and CHECK tests only whether
// its container ID holds anything at all.

// backupNode returns a node that verifies each time it is asked, with IPv4 only.
func backupNode(t *testing.T) *harness.Node {
	t.Helper()
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.0.0", Subnets: []string{"10.15.0.0/24"}})
	n.Flags = append(n.Flags, "--verify-interval=0s")
	return n
}

// Trap: the plugin's store is restored from a backup that is older than the address:
// the next one who asks the plugin would get it.
func TestRestoredStoreLacksLease(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"in service": false, "across a restart": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := backupNode(t)
			s := n.Start(t)
			s.Allocate(t, harness.Request{Owner: "health"})
			restore := n.BackUpStore(t)
			held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
			if restart {
				s.Stop(t)
			}
			restore()
			wantLeases(t, n, 1)
			if restart {
				s = n.Start(t)
				s.WaitConsistent(t) // reacquired at start
			}
			wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
			wantLeased(t, n, held...)
			if c := s.Health(t).DelegatedIPAM.Counters; c["lost"] != 1 || c["reacquired"] != 1 {
				t.Errorf("the counters are %v; want one lost and reacquired", c)
			}
		})
	}
}

// Trap: in the restored store another ID has our address, which must not be that of two.
func TestRestoredStoreConflictingLease(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*testing.T, *harness.Node, *harness.Sidecar) (ip string, giveBack func()){
		"to a pod": func(t *testing.T, n *harness.Node, _ *harness.Sidecar) (string, func()) {
			n.LeaseToPod(t, "pods", "10.15.0.9")
			return "10.15.0.9", func() { n.WipeStore(t) }
		},
		"to another owner": func(t *testing.T, _ *harness.Node, s *harness.Sidecar) (string, func()) {
			ip := s.Allocate(t, harness.Request{Owner: "health"}).Address.IPv4
			return ip, func() { s.Release(t, ip) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := backupNode(t)
			s := n.Start(t)
			ip, giveBack := before(t, n, s)
			restore := n.BackUpStore(t)
			giveBack()
			s.TryRestore(t, ip, "router").WantStatus(t, http.StatusOK)
			restore()

			// CHECK says no, and host-local does not give the address a second time.
			now := s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4
			if now == ip {
				t.Fatalf("the owner still gets %s, which the plugin holds for another", now)
			}
			if c := s.Health(t).DelegatedIPAM.Counters; c["lost"] != 1 {
				t.Errorf("the counters are %v; want one lost", c)
			}
			other := s.Allocate(t, harness.Request{Owner: "health"}).Address.IPv4
			if other == now {
				t.Errorf("both owners have %s", now)
			}
			wantLeased(t, n, now, other)
			s.WaitConsistent(t)
		})
	}
}

// Trap: the backup has our container ID with another address. CHECK does not see it; the
// lease files show it.
func TestRestoredStoreOlderAddress(t *testing.T) {
	t.Parallel()
	n := backupNode(t)
	s := n.Start(t)
	older := s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4
	restore := n.BackUpStore(t)
	s.Release(t, older)
	held := s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4
	if held == older {
		t.Fatalf("host-local gave %s again; want another address for this test", held)
	}
	restore()

	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), []string{held})
	wantLeases(t, n, 1)
	wantLeased(t, n, held)
	if c := s.Health(t).DelegatedIPAM.Counters; c["lost"] != 1 || c["reacquired"] != 1 || c["duplicates"] != 0 {
		t.Errorf("the counters are %v; want %s lost and reacquired", c, held)
	}
	s.Release(t, held)
	s.WaitConsistent(t)
}

// Trap: a lease that was released after the backup is nobody's: a leak, until its
// owner asks again.
func TestRestoredStoreLeakedLease(t *testing.T) {
	t.Parallel()
	n := backupNode(t)
	s := n.Start(t)
	released := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	id := s.Attachment(t, "router").ContainerID
	restore := n.BackUpStore(t)
	s.Release(t, released...)
	restore()

	if got := n.Leases(t); len(got) != 1 || got[0].ContainerID != id || s.Attachment(t, "router") != nil {
		t.Fatalf("the plugin holds %v and the list is %+v; want the lease of %s to be in none of our records", got, s.List(t), id)
	}
	s.Allocate(t, harness.Request{Owner: "health"})
	s.Stop(t)
	s = n.Start(t)
	if got := len(n.Leases(t)); got != 2 {
		t.Errorf("after a restart the plugin holds %d leases; want the leak still there", got)
	}

	// The ADD of the same owner begins with a DEL of its container ID.
	s.Allocate(t, harness.Request{Owner: "router"})
	s.WaitConsistent(t)
}
