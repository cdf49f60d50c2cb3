package e2e

import (
	"fmt"
	"slices"
	"testing"

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
