package e2e

import (
	"fmt"
	"net/http"
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

// Trap: calico lacks STATUS, because its CNI library is older than 1.1.0, and the STATUS of azure
// and whereabouts succeeds regardless of its backend.
func TestSTATUSNotCalled(t *testing.T) {
	t.Parallel()
	for pluginType, version := range map[string]string{"calico-ipam": "1.0.0", "azure-ipam": "1.1.0", "whereabouts": "1.1.0"} {
		t.Run(pluginType, func(t *testing.T) {
			t.Parallel()
			n, plugin := scriptedNode(t, pluginType, nil)
			plugin.SetScript(t, "STATUS", `{"error":{"cniVersion":"1.0.0","code":50,"msg":"the datastore is away"}}`)
			s := n.Start(t, "--enable-ipv6=false", "--accept-unsafe-plugin")
			if got := s.Health(t).DelegatedIPAM.Pools[0].CNIVersion; got != version {
				t.Errorf("the CNI version is %s; want %s, its highest", got, version)
			}
			s.AllocateFor(t, "kube-system/router")
			if got := plugin.CallCount(t, "STATUS"); got != 0 {
				t.Errorf("STATUS was called %d times; want none", got)
			}
		})
	}
}

// Trap: azure ignores a requested address. The other address that it allocates leaks unless it is released.
func TestAzureRestore(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "azure-ipam", nil)
	s := n.Start(t, "--enable-ipv6=false")
	s.TryRestore(t, "10.15.0.77", "router").WantError(t, http.StatusInternalServerError, "10.15.0.77", "10.15.0.2")
	if plugin.Received(t, "10.15.0.77") || !plugin.Received(t, "K8S_POD_NAME=") {
		t.Error("the plugin got 10.15.0.77 or no pod; want a pod only")
	}
	wantHolds(t, plugin)
	wantNoAttachment(t, s, "router")
}

// A plugin built with CNI's library reports an unreachable server with the code of any error.
func TestOutageIsNoLoss(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
	held := s.AllocateFor(t, "health")
	for _, verb := range []string{"ADD", "CHECK", "DEL"} {
		plugin.SetScript(t, verb, `{"error":{"code":999,"msg":"dial tcp: connection refused"}}`)
	}
	wantAddresses(t, s.AllocateFor(t, "health"), held)
	s.Stop(t)
	s = n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
	wantAddresses(t, s.AllocateFor(t, "health"), held)
	for _, verb := range []string{"ADD", "CHECK", "DEL"} {
		plugin.ClearScript(t, verb)
	}
	if got := s.AllocateFor(t, "router"); slices.Equal(got, held) {
		t.Errorf("the router gets %q, which health has", got)
	}
	wantHolds(t, plugin, append(s.AllocateFor(t, "health"), s.AllocateFor(t, "router")...)...)
	s.WantCounters(t, map[string]int64{"lost": 0, "duplicates": 0})
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

// Trap: an ADD of azure that gets no response releases what its container ID holds, so no ADD must
// verify a held address. Before, the address of the router was allocated to a pod.
func TestAzureNotVerified(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"repeated request": false, "restart": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, plugin := scriptedNode(t, "azure-ipam", nil)
			s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
			router := s.AllocateFor(t, "router")
			adds := plugin.CallCount(t, "ADD")
			plugin.StallDaemon(t)
			if restart {
				s.Kill(t)
				s = n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
			}
			wantAddresses(t, s.AllocateFor(t, "router"), router)
			if got := plugin.CallCount(t, "ADD"); got != adds {
				t.Errorf("a held address led to %d ADDs; want none", got-adds)
			}
			s.TryAllocate(t, harness.Request{Owner: "default/web"}).WantError(t, http.StatusBadGateway, "did not respond")
			plugin.UnstallDaemon(t)

			web := s.AllocateFor(t, "default/web")
			wantHolds(t, plugin, append(web, router...)...)
			s.WantCounters(t, map[string]int64{"duplicates": 0, "lost": 0})
		})
	}
}

// Trap: no container ID of azure gets two ADDs, because a queued DEL may be executed at any later time.
func TestAzureUniqueIDs(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "azure-ipam", nil)
	s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
	for range 3 {
		held := s.AllocateFor(t, "router")
		plugin.StallDaemon(t)
		s.TryAllocate(t, harness.Request{Owner: "health"}).WantError(t, http.StatusBadGateway, "did not respond")
		plugin.UnstallDaemon(t)
		s.Release(t, held...)
		s.Kill(t)
		n.WipeJournal(t)
		s = n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
	}
	s.AllocateFor(t, "health")
	seen := map[string]bool{}
	for _, call := range plugin.Calls(t) {
		id := call.Env["CNI_CONTAINERID"]
		if call.Verb == "ADD" && seen[id] {
			t.Errorf("two ADDs had the container ID %s; want each ID once", id)
		}
		seen[id] = seen[id] || call.Verb == "ADD"
	}
	if len(seen) < 6 {
		t.Errorf("%d ADDs; want at least 6", len(seen))
	}
}

// Trap: calico returns one family where an address is requested, and refuses one in its cooldown.
func TestCalicoRestore(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "calico-ipam", map[string]any{"cooldown": true, "ranges": [][]map[string]string{
		{{"subnet": "10.15.0.0/24"}}, {{"subnet": "fd00:15::/112"}},
	}})
	s := n.Start(t)
	both := s.AllocateFor(t, "router")
	if len(both) != 2 {
		t.Fatalf("the router has %q; want two addresses", both)
	}
	s.Release(t, both...)
	s.TryRestore(t, both[0], "router").WantError(t, http.StatusInternalServerError, both[0])
	s.TryRestore(t, "10.15.0.77", "router").WantStatus(t, http.StatusOK)
	wantHolds(t, plugin, "10.15.0.77")
	s.TryAllocate(t, harness.Request{Owner: "router", Family: "ipv6"}).
		WantError(t, http.StatusBadGateway, "10.15.0.77", "no address of [ipv6]", "release the attachment")
	s.Release(t, "10.15.0.77")
	if again := s.AllocateFor(t, "router"); len(again) != 2 {
		t.Errorf("the router has %q; want both families after its release", again)
	}
}

// Trap: whereabouts' DEL drops every error after 60 s. Terminated before, it counts as failed.
func TestWhereaboutsTimeout(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "whereabouts", nil)
	s := n.Start(t, "--enable-ipv6=false", "--accept-unsafe-plugin", "--plugin-timeout=59s")
	held := s.AllocateFor(t, "router")
	s.Stop(t)
	s = n.Launch(t, "--enable-ipv6=false", "--accept-unsafe-plugin", "--plugin-timeout=60s")
	s.WaitServing(t)
	texts := []string{"--plugin-timeout is 1m0s", "whereabouts", "expected less than 1m0s"}
	s.TryAllocate(t, harness.Request{Owner: "health"}).WantError(t, http.StatusBadGateway, texts...)
	wantNotReady(t, s.Ready(), texts...)
	s.TryRelease(t, held[0]).WantError(t, http.StatusInternalServerError, texts...)
	wantHolds(t, plugin, held...)
	s.Stop(t)
	n.Start(t, "--enable-ipv6=false", "--accept-unsafe-plugin")
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
