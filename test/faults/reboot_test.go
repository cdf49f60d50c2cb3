package faults

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// killAndReboot kills the daemon and changes the boot ID.
func killAndReboot(t *testing.T, st *stats, n *harness.Node, s *harness.Daemon) {
	t.Helper()
	s.Kill(t)
	st.kills.Add(1)
	n.Reboot(t)
}

//evidence:design/reliability the store survived, is empty, lacks the last write, or has only a pod's address
func TestRebootKeepsAddresses(t *testing.T) {
	// The power loss reverts the store to the backup.
	eachCase(t, reboot, map[string]func(t *testing.T, n *harness.Node, backup func()){
		"store survived":                  func(*testing.T, *harness.Node, func()) {},
		"store empty":                     func(t *testing.T, n *harness.Node, _ func()) { n.WipeStore(t) },
		"store lacks the last lease":      func(_ *testing.T, _ *harness.Node, backup func()) { backup() },
		"store has only a lease of a pod": func(t *testing.T, n *harness.Node, _ func()) { n.WipeStore(t); n.LeaseToPod(t, "pods", "10.15.0.99") },
	}, func(t *testing.T, st *stats, lose func(*testing.T, *harness.Node, func())) {
		n := nodeWith(t)
		s := n.Start(t)
		router := s.AllocateFor(t, "router")
		backup := n.BackUpStore(t)
		health := s.AllocateFor(t, "health")
		killAndReboot(t, st, n, s)
		lose(t, n, backup)

		s = n.Start(t)
		s.WaitConsistent(t) // before any request
		wantHeld(t, s, "router", router)
		wantHeld(t, s, "health", health)
		s.WantCounters(t, map[string]int64{"duplicates": 0})
	})
}

// The store is older than the journal: the leases of both container IDs have the address of the
// other owner, or a released one. host-local's CHECK, which proves only that the ID has a lease,
// succeeds.
//
//evidence:design/reliability the store has the ID with a wrong address
func TestRebootWithOlderStore(t *testing.T) {
	eachCase(t, reboot, map[string][2]string{
		"owners exchanged":            {"10.15.0.8", "10.15.0.7"},
		"one got the other's address": {"10.15.0.9", "10.15.0.7"},
		"both got other addresses":    {"10.15.0.10", "10.15.0.9"},
	}, func(t *testing.T, st *stats, wanted [2]string) {
		n := nodeWith(t)
		n.Flags = append(n.Flags, "--enable-ipv6=false", "--verify-interval=0s")
		s := n.Start(t)
		s.TryRestore(t, "10.15.0.7", "router").WantStatus(t, http.StatusOK)
		s.TryRestore(t, "10.15.0.8", "health").WantStatus(t, http.StatusOK)
		backup := n.BackUpStore(t)
		s.Release(t, "10.15.0.7", "10.15.0.8")
		s.TryRestore(t, wanted[0], "router").WantStatus(t, http.StatusOK)
		s.TryRestore(t, wanted[1], "health").WantStatus(t, http.StatusOK)
		killAndReboot(t, st, n, s)
		backup()

		s = n.Start(t)
		s.WaitConsistent(t)
		wantHeld(t, s, "router", wanted[:1])
		wantHeld(t, s, "health", wanted[1:])
	})
}

//evidence:design/reliability a pod has the address
func TestRebootWithAddressOfPod(t *testing.T) {
	st := oneCase(t, reboot)
	n := nodeWith(t)
	n.Flags = append(n.Flags, "--enable-ipv6=false")
	s := n.Start(t)
	backup := n.BackUpStore(t)
	held := s.AllocateFor(t, "router")
	killAndReboot(t, st, n, s)
	backup() // the lease is lost, and a pod gets the address before the daemon starts
	n.LeaseToPod(t, "pods", held[0])

	s = n.Start(t)
	if now := s.AllocateFor(t, "router"); slices.Equal(now, held) {
		t.Errorf("the owner got %q of a pod", now)
	}
	for _, owner := range []string{"health", "ingress", "demo"} {
		wantNotGiven(t, s, owner, held)
	}
	s.WantCounters(t, map[string]int64{"duplicates": 0})
	s.WaitConsistent(t)
}

//evidence:design/reliability power loss in the middle of an allocate
func TestRebootDuringADD(t *testing.T) {
	st := oneCase(t, reboot)
	n := nodeWith(t)
	plugin := installPausable(t, n)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	plugin.interruptADD(t, s, func() { killAndReboot(t, st, n, s) })
	plugin.resume(t)
	plugin.waitPausedADDs(t, 0) // the ADD ends before the reboot

	s = n.Start(t)
	s.WaitConsistent(t)
	wantHeld(t, s, "router", held)
	harness.Eventually(t, "the interrupted allocate to be undone", func() error {
		if a := s.Attachment(t, "interrupted-0"); a != nil {
			return fmt.Errorf("the attachment is %+v", a)
		}
		return nil
	})
	s.WaitConsistent(t)
}
