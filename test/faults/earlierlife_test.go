package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

func TestAPluginThatOutlivesItsSidecarAndAllocatesAfterTheRestartLeaksNothing(t *testing.T) {
	t.Parallel()
	count := newTally(t, earlierLife)
	for name, asksAgain := range map[string]bool{"nobody asks again": false, "its owner asks again meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n := nodeWith(t)
			plugin := newGated(t, n)
			s := n.Start(t)
			plugin.shut(t)
			first := allocateInBackground(s, "router", 1)
			plugin.awaitADDs(t, 1)
			s.Kill(t)
			count.killed(1)
			if a := <-first; a.err == nil {
				t.Fatalf("the killed sidecar answered %s", a.Response)
			}

			s = n.Start(t)
			if got := plugin.waiting(t); got != 1 {
				t.Fatalf("%d ADDs wait; want that of the earlier life to have outlived it", got)
			}
			var again <-chan answered
			if asksAgain {
				again = allocateInBackground(s, "router", 1)
			}
			plugin.open(t)
			want := 0
			if asksAgain {
				a := <-again
				want = len(a.Allocation(t).Addresses())
			}
			// Before the earlier ADD has written, store and list agree that there is nothing.
			plugin.awaitADDs(t, 0)
			s.WaitConsistent(t)
			if got := len(n.Leases(t)); got != want {
				t.Errorf("the plugin holds %v; want %d addresses", n.Leases(t), want)
			}
			if got := plugin.most(t); got != 1 {
				t.Errorf("%d calls for one container ID ran at one time; want the earlier one to be waited for", got)
			}
		})
	}
}

// patientProfile is a plugin whose daemon may finish an ADD some seconds after
// its client has gone, such as the dhcp plugin's.
const patientProfile = `{
  "type": "patient", "repeatedAdd": "refused", "verifyBy": "check", "checkProves": "presence",
  "lost": {"minCode": 100}, "addOutlivesSeconds": 10, "del": "released", "store": "remote", "lookup": "none", "podIdentity": "none",
  "namespace": "any", "unique": true
}`

func TestADaemonThatFinishesAnADDLongAfterItsClientTimedOutLeaksNothing(t *testing.T) {
	t.Parallel()
	count := newTally(t, earlierLife)
	for name, killed := range map[string]bool{"in service": false, "across a kill": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n := harness.NewNode(t)
			profile := filepath.Join(n.Dir, "patient.json")
			must(t, os.WriteFile(profile, []byte(patientProfile), 0o644))
			plugin := n.InstallScripted(t, "patient")
			n.Store = func() ([]oracle.Lease, error) { return plugin.Leases("pods") }
			n.WriteNetwork(t, "05-cilium", harness.Network{
				Name: "pods", CNIVersion: "1.0.0", Plugin: "patient", IPAM: map[string]any{"subnet": "10.15.0.0/24"},
			})
			n.Flags = append(n.Flags, "--plugin-profile="+profile, "--plugin-timeout=3s", "--enable-ipv6=false")
			s := n.Start(t)

			plugin.SetScript(t, "ADD", `{"times":1,"late":true,"hang":true}`)
			wantAnswer(t, s.TryAllocate(t, harness.Request{Owner: "router"}), http.StatusBadGateway, "did not end within")
			plugin.ClearScript(t, "ADD")
			if killed {
				s.Kill(t)
				count.killed(1)
			}
			plugin.RunLateCalls(t)
			if killed {
				s = n.Start(t)
			}
			if a := s.Attachment(t, "router"); a == nil {
				t.Fatal("there is no record any more; want one for as long as the daemon may still act")
			}

			harness.Eventually(t, "what came late to be given back", func() error {
				if held := plugin.Holds(t); len(held) != 0 || s.Attachment(t, "router") != nil {
					return fmt.Errorf("the plugin holds %q, the record is %+v", held, s.Attachment(t, "router"))
				}
				return nil
			})
			s.AllocateFor(t, "router")
			s.WaitConsistent(t)
		})
	}
}

func TestAStateFolderThatIsCopiedToAnotherMachineReleasesNothingThere(t *testing.T) {
	t.Parallel()
	newTally(t, earlierLife).watch(t)
	n := nodeWith(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	before := n.Leases(t)
	s.Stop(t)

	n.ReplaceFile(t, harness.MachineIDFile, strings.Repeat("c0ffee00", 4)+"\n")
	s = n.Launch(t)
	s.WaitReady(t)
	if q := s.Health(t).DelegatedIPAM.Quarantined; len(q) != 1 || !strings.Contains(q[0].Reason, "machine") {
		t.Errorf("health reports the quarantined records %+v; want that of the other machine", q)
	}
	if list := s.List(t); len(list) != 0 {
		t.Errorf("the list has %+v; want nothing of another machine", list)
	}
	// host-local's store here stands for one that both machines use.
	s.TryRelease(t, held[0]).WantStatus(t, http.StatusNotFound)
	if got := s.AllocateFor(t, "health"); slices.Contains(held, got[0]) {
		t.Errorf("another owner got %q, which the other machine has", got)
	}
	for _, l := range before {
		if !slices.Contains(n.Leases(t), l) {
			t.Errorf("the plugin does not hold %s any more: a record of another machine was acted on", l)
		}
	}
	// Asked for by the same name of a node, it is the same container ID.
	s.AllocateFor(t, "router")
	s.WaitConsistent(t)
	s.Stop(t)
}

func TestARenamedNodeKeepsWhatItHeldUnderTheOldContainerIDs(t *testing.T) {
	t.Parallel()
	newTally(t, earlierLife).watch(t)
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

func TestWhatWasAddedWithAnotherConfigurationIsGivenBackWithThatOne(t *testing.T) {
	t.Parallel()
	count := newTally(t, earlierLife)
	elsewhere := func(n *harness.Node, name string) harness.Network {
		return harness.Network{
			Name: name, Subnets: []string{"10.16.0.0/24", "fd00:16::/112"}, CNIVersion: "1.0.0",
			IPAM: map[string]any{"dataDir": filepath.Join(n.Dir, "store-of-today")},
		}
	}
	for name, change := range map[string]func(*testing.T, *harness.Node){
		"the plugin's folder and ranges have changed": func(t *testing.T, n *harness.Node) { n.WriteNetwork(t, "05-cilium", elsewhere(n, "pods")) },
		"the network has another name":                func(t *testing.T, n *harness.Node) { n.WriteNetwork(t, "05-cilium", elsewhere(n, "renamed")) },
		"there is no configuration any more": func(t *testing.T, n *harness.Node) {
			must(t, os.Remove(filepath.Join(n.ConfDir, "05-cilium.conflist")))
		},
		"the configuration is broken": func(t *testing.T, n *harness.Node) { n.WriteConf(t, "05-cilium.conflist", []byte(`{"name":`)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n := nodeWith(t)
			s := n.Start(t)
			held := s.AllocateFor(t, "router")
			s.Stop(t)
			change(t, n)

			s = n.Launch(t, "--verify-interval=0s")
			s.WaitServing(t)
			wantHeld(t, s, "router", held)
			s.Release(t, held...)
			if leases := n.Leases(t); len(leases) != 0 {
				t.Errorf("the folder of the old configuration still has %v", leases)
			}
			if list := s.List(t); len(list) != 0 {
				t.Errorf("the list still has %+v", list)
			}
			s.Stop(t)
		})
	}
}
