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
