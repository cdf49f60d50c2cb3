package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

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
