package faults

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// anotherBoot is the boot ID after the reboot.
const anotherBoot = "b00710ad-0000-4000-8000-000000000001\n"

// rebooted starts the sidecar of a killed one in another boot.
func rebooted(t *testing.T, n *harness.Node) *harness.Sidecar {
	t.Helper()
	n.ReplaceFile(t, harness.BootIDFile, anotherBoot)
	return n.Start(t)
}

func TestAfterARebootEachOwnerHasItsAddressAgain(t *testing.T) {
	t.Parallel()
	count := newTally(t, reboot)
	// What the power loss took is what was done since the backup.
	for name, lose := range map[string]func(t *testing.T, n *harness.Node, backup func()){
		"the plugin's store survived":         func(*testing.T, *harness.Node, func()) {},
		"the plugin's store is empty":         func(t *testing.T, n *harness.Node, _ func()) { n.WipeStore(t) },
		"the plugin's store lacks the last":   func(_ *testing.T, _ *harness.Node, backup func()) { backup() },
		"the plugin's store has only a pod's": func(t *testing.T, n *harness.Node, _ func()) { n.WipeStore(t); n.LeaseToPod(t, "pods", "10.15.0.99") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n := nodeWith(t)
			s := n.Start(t)
			router := s.AllocateFor(t, "router")
			backup := n.BackUpStore(t)
			health := s.AllocateFor(t, "health")
			s.Kill(t)
			count.killed(1)
			lose(t, n, backup)

			s = rebooted(t, n)
			s.WaitConsistent(t) // without being asked
			wantHeld(t, s, "router", router)
			wantHeld(t, s, "health", health)
			wantNothingDoubled(t, s)
		})
	}
}

// The store is older than the journal: it has the container IDs of both owners
// with each other's address, or one that was given back, so that host-local's
// CHECK, which looks for any address of the ID, says yes.
func TestAfterARebootAPresenceOnlyCHECKIsNotBelievedForAWrongAddress(t *testing.T) {
	t.Parallel()
	count := newTally(t, reboot)
	for name, wanted := range map[string]struct{ router, health string }{
		"the owners have changed places": {"10.15.0.8", "10.15.0.7"},
		"one moved to the other's place": {"10.15.0.9", "10.15.0.7"},
		"both moved":                     {"10.15.0.10", "10.15.0.9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n := nodeWith(t)
			n.Flags = append(n.Flags, "--enable-ipv6=false", "--verify-interval=0s")
			s := n.Start(t)
			s.TryRestore(t, "10.15.0.7", "router").WantStatus(t, http.StatusOK)
			s.TryRestore(t, "10.15.0.8", "health").WantStatus(t, http.StatusOK)
			backup := n.BackUpStore(t)
			s.Release(t, "10.15.0.7", "10.15.0.8")
			s.TryRestore(t, wanted.router, "router").WantStatus(t, http.StatusOK)
			s.TryRestore(t, wanted.health, "health").WantStatus(t, http.StatusOK)
			s.Kill(t)
			count.killed(1)
			backup()

			s = rebooted(t, n)
			s.WaitConsistent(t)
			wantHeld(t, s, "router", []string{wanted.router})
			wantHeld(t, s, "health", []string{wanted.health})
		})
	}
}

func TestAfterARebootAnOwnerWhoseAddressIsAPodsGetsAnotherAndThePodKeepsIt(t *testing.T) {
	t.Parallel()
	count := newTally(t, reboot)
	count.watch(t)
	n := nodeWith(t)
	n.Flags = append(n.Flags, "--enable-ipv6=false")
	s := n.Start(t)
	backup := n.BackUpStore(t)
	held := s.AllocateFor(t, "router")
	s.Kill(t)
	count.killed(1)
	backup() // the plugin forgot it, and gave it to a pod before we started
	n.LeaseToPod(t, "pods", held[0])

	s = rebooted(t, n)
	if now := s.AllocateFor(t, "router"); slices.Equal(now, held) {
		t.Errorf("the owner has %q, which is a pod's", now)
	}
	for i := range 3 {
		other := s.Allocate(t, harness.Request{Owner: []string{"health", "ingress", "demo"}[i]}).Addresses()
		if slices.Equal(other, held) {
			t.Errorf("another owner has %q, which is a pod's", other)
		}
	}
	wantNothingDoubled(t, s)
	s.WaitConsistent(t)
}

func TestWhatWasCutOffBeforeARebootIsFinishedAfterIt(t *testing.T) {
	t.Parallel()
	count := newTally(t, reboot)
	count.watch(t)
	n := nodeWith(t)
	plugin := newGated(t, n)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	plugin.shut(t)
	cut := allocateInBackground(s, "cut", 1)
	plugin.awaitADDs(t, 1)
	s.Kill(t)
	count.killed(1)
	if a := <-cut; a.err == nil {
		t.Fatalf("the killed sidecar answered %s", a.Response)
	}
	plugin.open(t)
	plugin.awaitADDs(t, 0) // it had allocated before the power went

	s = rebooted(t, n)
	s.WaitConsistent(t)
	wantHeld(t, s, "router", held)
	harness.Eventually(t, "the allocate that was cut off to be undone", func() error {
		if a := s.Attachment(t, "cut-0"); a != nil {
			return fmt.Errorf("there is %+v", a)
		}
		return nil
	})
	s.WaitConsistent(t)
}

// wantNothingDoubled wants no address to have come twice from the plugin.
func wantNothingDoubled(t *testing.T, s *harness.Sidecar) {
	t.Helper()
	if c := s.Health(t).DelegatedIPAM.Counters; c["duplicates"] != 0 {
		t.Errorf("the counters are %v; want no duplicates", c)
	}
}
