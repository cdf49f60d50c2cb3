package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Trap: its CHECK always fails, so it must not be called. Its ip-reconciler frees every reservation
// without a live pod, which the daemon cannot detect: whereabouts is refused unless accepted explicitly.
func TestWhereaboutsAccepted(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "whereabouts", nil)
	s := n.Start(t, "--enable-ipv6=false", "--accept-unsafe-plugin", "--verify-interval=0s")
	router, health := s.AllocateFor(t, "router"), s.AllocateFor(t, "health")
	wantAddresses(t, s.AllocateFor(t, "router"), router)
	wantHolds(t, plugin, append(router, health...)...)
	s.Release(t, router...)
	wantHolds(t, plugin, health...)
	plugin.Reconcile(t, "default/web")
	wantHolds(t, plugin)
	wantAddresses(t, s.AllocateFor(t, "health"), health)
	wantHolds(t, plugin)
	s.WantCounters(t, map[string]int64{"lost": 0})
	check.Must(t, s.Ready())
}

//evidence:design/reliability a queued release is executed after the next ADD
func TestAzureQueuedDEL(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "azure-ipam", nil)
	s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
	before := s.AllocateFor(t, "kube-system/router")
	plugin.StopDaemon(t)
	s.Release(t, before...)
	if queued := plugin.Queued(t); queued != 1 {
		t.Fatalf("%d releases are queued; want 1", queued)
	}
	wantHolds(t, plugin, before...)

	plugin.StartDaemon(t)
	now := s.AllocateFor(t, "kube-system/router")
	if queued := plugin.Queued(t); queued != 0 {
		t.Fatalf("%d releases are still queued; want them executed", queued)
	}
	wantHolds(t, plugin, now...)
	wantAddresses(t, s.AllocateFor(t, "kube-system/router"), now)
	s.WantCounters(t, map[string]int64{"lost": 0})
	s.Release(t, now...)
	wantHolds(t, plugin)
}

// wantHolds waits until the plugin holds exactly these addresses: some releases are executed
// in the background.
func wantHolds(t *testing.T, plugin harness.Scripted, ips ...string) {
	t.Helper()
	slices.Sort(ips)
	harness.Eventually(t, fmt.Sprintf("the plugin to hold %q", ips), func() error {
		if held := plugin.Holds(t); !slices.Equal(slices.Sorted(slices.Values(held)), ips) {
			return fmt.Errorf("the plugin holds %q", held)
		}
		return nil
	})
}

// Plugins that have left their process groups are terminated, and others run in their place.
//
//evidence:operate/security it hangs, ignores SIGTERM, leaves its process group, or a child that keeps its output open
func TestEscapedPlugin(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	s := n.Start(t, "--enable-ipv6=false", "--plugin-timeout=2s", "--max-plugin-processes=3") // one is reserved for pods
	owners := []string{"first", "second"}
	answers := make(chan harness.Response)
	for _, owner := range owners {
		plugin.SetOwnerScript(t, "ADD", owner, `{"leaveGroup":true,"hang":true}`)
		go func() { answers <- s.TryAllocate(t, harness.Request{Owner: owner}) }()
	}
	for range owners {
		(<-answers).WantError(t, http.StatusBadGateway, "did not end within 2s")
	}
	s.AllocateFor(t, "health")
	s.Stop(t)
}

// The plugin of one pool hangs in as many calls as may run. In the other pool a new owner, one whose
// lease is lost and whose address a pod has, and a release are served meanwhile.
//
//evidence:design/reliability the plugin of one pool hangs
func TestHangingPool(t *testing.T) {
	t.Parallel()
	const processes = 4
	n := nodeWith(t, harness.IPv4Only())
	store := n.Store
	plugin := n.InstallScripted(t, "scripted")
	n.Store = store
	n.WriteNetwork(t, "10-hangs", harness.Network{Name: "hangs", CNIVersion: "1.0.0", Plugin: "scripted", IPAM: ranges()})
	s := n.Start(t, "--pool=hangs=hangs", "--verify-interval=0s", "--plugin-timeout=10m", fmt.Sprint("--max-plugin-processes=", processes+1)) // one is reserved for pods
	router := s.AllocateFor(t, "router")
	health := s.AllocateFor(t, "health")

	const requestWait = 80 * time.Second // docs/design/how-it-works.md, Waiting
	sent := time.Now()
	plugin.SetScript(t, "ADD", `{"gate":"go-on"}`)
	answered := make(chan harness.Response, processes)
	for i := range processes {
		go func() { answered <- s.TryAllocate(t, harness.Request{Owner: fmt.Sprint("hangs-", i), Pool: "hangs"}) }()
	}
	harness.Eventually(t, "the plugin to hang", func() error {
		if calls := plugin.CallCount(t, "ADD"); calls < processes {
			return fmt.Errorf("%d calls", calls)
		}
		return nil
	})
	s.Release(t, health...)
	n.WipeStore(t)
	n.LeaseToPod(t, "pods", router[0])
	if now := s.AllocateFor(t, "router"); now[0] == router[0] {
		t.Errorf("router has %s, which a pod has", now[0])
	}
	s.AllocateFor(t, "ingress")
	if len(answered) > 0 && time.Since(sent) < requestWait {
		t.Errorf("%+v does not hang any more", <-answered)
	}
	plugin.Open(t, "go-on")
	for range processes {
		if a := <-answered; time.Since(sent) < requestWait {
			a.WantStatus(t, http.StatusCreated)
		}
	}
	if o := n.Command(t, "gc", "--pool=hangs", "--yes"); o.ExitCode != 0 { // its store is not compared
		t.Errorf("gc: %s", o.Stderr)
	}
}

// staticNode returns a node whose network delegates to the real static plugin, which returns the
// same address for every ADD and has no store.
func staticNode(t *testing.T) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	n.InstallPlugin(t, "static")
	n.Store = nil
	n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "static", IPAM: map[string]any{
		"addresses": []map[string]string{{"address": "10.15.0.9/24", "gateway": "10.15.0.1"}},
	}})
	n.Flags = []string{"--enable-ipv6=false"}
	return n
}

func TestStaticConcurrentOwners(t *testing.T) {
	t.Parallel()
	s := staticNode(t).Start(t)
	for round := range 20 {
		requests := []harness.Request{{Owner: fmt.Sprintf("a-%d", round)}, {Owner: fmt.Sprintf("b-%d", round)}}
		served := 0
		for _, a := range s.AllocateConcurrently(t, requests) {
			if a.Status == http.StatusCreated {
				served++
			}
		}
		if list := s.List(t); served != 1 || len(list) != 1 {
			t.Fatalf("in round %d %d owners were served and the list is %+v; want one owner", round, served, list)
		}
		s.Release(t, "10.15.0.9")
	}
}
