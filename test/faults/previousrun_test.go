package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

//evidence:design/reliability a plugin outlives a killed daemon and allocates after the restart
func TestPluginOutlivesDaemon(t *testing.T) {
	eachCase(t, previousRun, map[string]bool{"without a retry": false, "owner retries": true}, func(t *testing.T, st *stats, retry bool) {
		n := nodeWith(t)
		plugin := installPausable(t, n)
		n.Flags = append(n.Flags, "--plugin-timeout=10m")
		s := n.Start(t)
		plugin.interruptADD(t, s, func() { s.Kill(t) })
		st.kills.Add(1)

		s = n.Start(t)
		plugin.waitPausedADDs(t, 1) // the one of the previous run
		owners, want := 0, 0
		if retry {
			owners = 1
		}
		retried := allocateInBackground(s, "interrupted", owners)
		plugin.resume(t)
		for range owners {
			a := <-retried
			want = len(a.Allocation(t).Addresses())
		}
		// Until the first ADD has ended, an empty store and list are consistent.
		plugin.waitPausedADDs(t, 0)
		s.WaitConsistent(t)
		if got := len(n.Leases(t)); got != want {
			t.Errorf("the plugin has %v; want %d leases", n.Leases(t), want)
		}
		if got := plugin.most(t); got != 1 {
			t.Errorf("%d calls for one container ID ran concurrently; want 1", got)
		}
	})
}

//evidence:design/reliability the server of a plugin completes an ADD long after its client
func TestADDFinishesAfterTimeout(t *testing.T) {
	eachCase(t, previousRun, map[string]bool{"while serving": false, "across a kill": true}, func(t *testing.T, st *stats, killed bool) {
		n := harness.NewNode(t)
		const outlives = 6 * time.Second
		server := n.InstallCentral(t, int(outlives/time.Second), nil, map[string]any{"lateSeconds": 4})
		s := n.Start(t, "--plugin-timeout=2s")

		added := time.Now()
		server.SetScript(t, "ADD", `{"times":1,"late":true,"hang":true}`)
		s.TryAllocate(t, harness.Request{Owner: "router"}).WantError(t, http.StatusBadGateway, "did not end within")
		if killed {
			s.Kill(t)
			st.kills.Add(1)
		}
		server.RunLateCalls(t)
		if killed {
			s = n.Start(t)
		}
		// A slow machine may see the record only after this time.
		if a := s.Attachment(t, "router"); a == nil && time.Since(added) < outlives {
			t.Fatal("the record was removed while the server could still act")
		}

		harness.Eventually(t, "the late address to be released", func() error {
			if held := server.Holds(t); len(held) != 0 || s.Attachment(t, "router") != nil {
				return fmt.Errorf("the server holds %q, the record is %+v", held, s.Attachment(t, "router"))
			}
			return nil
		})
		harness.Eventually(t, "an address", func() error {
			if a := s.TryAllocate(t, harness.Request{Owner: "router"}); a.Status != http.StatusCreated {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
		s.WaitConsistent(t)
	})
}

//evidence:design/reliability the state directory is copied to another machine
//evidence:operate/security a damaged record, or one of another machine
func TestStateDirOfOtherMachine(t *testing.T) {
	oneCase(t, previousRun)
	n := nodeWith(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	before := n.Leases(t)
	s.Stop(t)

	n.Reboot(t) // a running machine keeps its journal (TestMachineIDChangesInBoot)
	n.ReplaceFile(t, harness.MachineIDFile, otherMachineID)
	n.ResetHistory() // the responses came from another machine
	s = n.Launch(t)
	s.WaitReady(t)
	wantQuarantined(t, s, "machine")
	if list := s.List(t); len(list) != 0 {
		t.Errorf("the list has %+v; want it empty", list)
	}
	// host-local's store acts as one that both machines share.
	s.TryRelease(t, held[0]).WantStatus(t, http.StatusNotFound)
	wantNotGiven(t, s, "health", held)
	for _, l := range before {
		if !slices.Contains(n.Leases(t), l) {
			t.Errorf("the plugin lacks %s, which was released although the record is of another machine", l)
		}
	}
	// With the same node name it is the same container ID.
	s.AllocateFor(t, "router")
	s.WaitConsistent(t)
	s.Stop(t)
}

const otherMachineID = "c0ffee00c0ffee00c0ffee00c0ffee00\n"

// A container of kind writes a new machine ID at each of its starts, while the kernel runs on.
//
//evidence:design/reliability the machine ID changes in the same boot, as in a restarted container of kind
func TestMachineIDChangesInBoot(t *testing.T) {
	oneCase(t, previousRun)
	n := nodeWith(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	s.Stop(t)

	n.ReplaceFile(t, harness.MachineIDFile, otherMachineID)
	s = n.Start(t)
	wantQuarantined(t, s, "")
	s.Release(t, held...)
	s.WaitConsistent(t)
}

//evidence:design/reliability the node is renamed
func TestNodeRenamed(t *testing.T) {
	oneCase(t, previousRun)
	n := nodeWith(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	released := s.AllocateFor(t, "health")
	id, oldHealth := s.Attachment(t, "router").ContainerID, s.Attachment(t, "health").ContainerID
	s.Stop(t)

	s = n.Start(t, "--node-name="+n.Name+"-renamed", "--verify-interval=0s")
	wantHeld(t, s, "router", held)
	if got := s.Attachment(t, "router").ContainerID; got != id {
		t.Errorf("the container ID is %s; want %s as before", got, id)
	}
	s.Release(t, released...)
	s.WaitConsistent(t)
	s.AllocateFor(t, "health")
	if got := s.Attachment(t, "health").ContainerID; got == oldHealth {
		t.Errorf("a new attachment has the container ID %s of the old name", got)
	}
	s.WaitConsistent(t)
}

//evidence:design/reliability the conflist is changed, renamed, removed or broken before the DEL
func TestReleaseAfterConfChange(t *testing.T) {
	other := func(t *testing.T, n *harness.Node, name string) {
		n.WriteNetwork(t, "05-cilium", harness.Network{
			Name: name, Subnets: []string{"10.16.0.0/24", "fd00:16::/112"}, CNIVersion: "1.0.0",
			IPAM: map[string]any{"dataDir": filepath.Join(n.Dir, "new-store")},
		})
	}
	const file = "05-cilium.conflist"
	eachCase(t, previousRun, map[string]func(*testing.T, *harness.Node){
		"other directory and ranges": func(t *testing.T, n *harness.Node) { other(t, n, "pods") },
		"network renamed":            func(t *testing.T, n *harness.Node) { other(t, n, "renamed") },
		"configuration removed":      func(t *testing.T, n *harness.Node) { check.Must(t, os.Remove(filepath.Join(n.ConfDir, file))) },
		"configuration broken":       func(t *testing.T, n *harness.Node) { n.WriteConf(t, file, []byte(`{"name":`)) },
	}, func(t *testing.T, _ *stats, change func(*testing.T, *harness.Node)) {
		n := nodeWith(t)
		s := n.Start(t)
		held := s.AllocateFor(t, "router")
		s.Stop(t)
		change(t, n)

		s = n.Launch(t, "--verify-interval=0s")
		s.WaitServing(t)
		if a := s.Attachment(t, "router"); a.State != "held" || len(a.Addresses) != len(held) || a.Addresses[0].IP.String() != held[0] {
			t.Errorf("the list has %+v; want %s held", a, held)
		}
		s.Release(t, held...)
		if leases, list := n.Leases(t), s.List(t); len(leases)+len(list) != 0 {
			t.Errorf("the store of the old configuration has %v, the list %+v; want both empty", leases, list)
		}
		s.Stop(t)
	})
}

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
