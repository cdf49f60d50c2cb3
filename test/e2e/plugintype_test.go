package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestWhereaboutsRefused(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "whereabouts", nil)
	s := n.Launch(t, "--enable-ipv6=false")
	s.WaitServing(t)
	a, ready := s.TryAllocate(t, harness.Request{Owner: "router"}), s.Ready()
	a.WantError(t, http.StatusBadGateway, "whereabouts", "reconciler", "--accept-unsafe-plugin")
	wantNotReady(t, ready, "whereabouts", "reconciler", "--accept-unsafe-plugin")
	if got := plugin.CallCount(t, "ADD"); got != 0 {
		t.Errorf("the refused plugin got %d ADDs; want none", got)
	}
	s.Stop(t)
}

func TestWhereaboutsAccepted(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "whereabouts", nil)
	s := n.Start(t, "--enable-ipv6=false", "--accept-unsafe-plugin", "--verify-interval=0s")
	router := s.AllocateFor(t, "router")
	health := s.AllocateFor(t, "health")
	// Its CHECK always fails, so it must not be called.
	wantAddresses(t, s.AllocateFor(t, "router"), router)
	wantHolds(t, plugin, append(router, health...)...)
	s.Release(t, router...)
	s.Release(t, health...)
	wantHolds(t, plugin)
}

// Trap: its ip-reconciler frees every reservation without a live pod. The sidecar cannot detect
// that, so whereabouts is refused unless it is accepted explicitly.
func TestWhereaboutsReconciler(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "whereabouts", nil)
	s := n.Start(t, "--enable-ipv6=false", "--accept-unsafe-plugin", "--verify-interval=0s")
	held := s.AllocateFor(t, "health")
	plugin.Reconcile(t, "default/web")
	wantHolds(t, plugin)
	wantAddresses(t, s.AllocateFor(t, "health"), held)
	wantHolds(t, plugin)
	s.WantCounters(t, map[string]int64{"lost": 0})
	if err := s.Ready(); err != nil {
		t.Errorf("readiness is %v; want no error", err)
	}
}

// Trap: calico's garbage collection frees addresses of unknown pods and keeps addresses without
// a pod, such as those of the sidecar.
func TestCalicoGCKeepsHeld(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "calico-ipam", nil)
	s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
	var held []string
	for _, owner := range []string{"router", "default/gone"} {
		held = append(held, s.AllocateFor(t, owner)...)
	}
	plugin.Reconcile(t, "default/web")
	wantHolds(t, plugin, held...)
}

// Trap: calico and azure lack STATUS, because their CNI library is older than 1.1.0.
func TestCalicoAzureWithoutSTATUS(t *testing.T) {
	t.Parallel()
	for _, pluginType := range []string{"calico-ipam", "azure-ipam"} {
		t.Run(pluginType, func(t *testing.T) {
			t.Parallel()
			n, plugin := scriptedNode(t, pluginType, nil)
			plugin.SetScript(t, "STATUS", `{"error":{"cniVersion":"1.0.0","code":50,"msg":"the datastore is away"}}`)
			s := n.Start(t, "--enable-ipv6=false")
			if got := s.Health(t).DelegatedIPAM.Pools[0].CNIVersion; got != "1.0.0" {
				t.Errorf("the CNI version is %s; want 1.0.0, its highest", got)
			}
			s.AllocateFor(t, "kube-system/router")
			if got := plugin.CallCount(t, "STATUS"); got != 0 {
				t.Errorf("STATUS was called %d times; want none", got)
			}
		})
	}
}

// Trap: azure ignores a requested address. The other address that it allocates leaks unless
// it is released.
func TestAzureRestore(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "azure-ipam", nil)
	s := n.Start(t, "--enable-ipv6=false")
	a := s.TryRestore(t, "10.15.0.77", "router")
	a.WantError(t, http.StatusInternalServerError, "10.15.0.77", "10.15.0.2")
	if plugin.Received(t, "10.15.0.77") || !plugin.Received(t, "K8S_POD_NAME=") {
		t.Error("the plugin got 10.15.0.77 or no pod; want a pod only")
	}
	wantHolds(t, plugin)
	wantNoAttachment(t, s, "router")
}

func TestSTATUSNotReady(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	s := n.Start(t, "--enable-ipv6=false")
	plugin.SetScript(t, "STATUS", `{"error":{"cniVersion":"1.1.0","code":50,"msg":"the datastore is away"}}`)
	s.WaitNotReady(t, "the datastore is away")
	if got := s.Health(t).DelegatedIPAM.Pools[0].NotReady; !strings.Contains(got, "the datastore is away") {
		t.Errorf("the pool's not-ready is %q; want the plugin's message", got)
	}
	plugin.ClearScript(t, "STATUS")
	s.WaitReady(t)
}

func TestSTATUSUnsupported(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	supportOnly(t, plugin, "1.0.0")
	plugin.SetScript(t, "STATUS", `{"error":{"cniVersion":"1.0.0","code":50,"msg":"the datastore is away"}}`)
	n.Start(t, "--enable-ipv6=false")
	if got := plugin.CallCount(t, "STATUS"); got != 0 {
		t.Errorf("STATUS was called %d times below CNI 1.1.0; want none", got)
	}
}

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

// Trap: azure's CHECK always succeeds, so an ADD verifies the address. If the address is lost, that
// ADD allocates another one, which must be released.
func TestAzureLostAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// taken is an address that a pod has got meanwhile.
		taken      string
		want       string
		reacquired int64
	}{
		"free again":     {want: "10.15.0.2", reacquired: 1},
		"taken by a pod": {taken: "10.15.0.2", want: "10.15.0.3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, plugin := scriptedNode(t, "azure-ipam", nil)
			s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
			wantAddresses(t, s.AllocateFor(t, "kube-system/router"), []string{"10.15.0.2"})
			id := s.Attachment(t, "kube-system/router").ContainerID
			store := filepath.Join(n.BinDir, "azure-ipam.d", "store")
			first, err := os.ReadFile(filepath.Join(store, "10.15.0.2"))
			harness.Must(t, err)
			harness.Must(t, os.Rename(filepath.Join(store, "10.15.0.2"), filepath.Join(store, "10.15.0.77")))
			pods := []string{}
			if c.taken != "" {
				pods = append(pods, c.taken)
				harness.Must(t, os.WriteFile(filepath.Join(store, c.taken), []byte("pod\ndefault/web"), 0o600))
			}

			wantAddresses(t, s.AllocateFor(t, "kube-system/router"), []string{c.want})
			wantHolds(t, plugin, append(pods, c.want)...)
			s.WantCounters(t, map[string]int64{"lost": 1, "reacquired": c.reacquired})
			if now := s.Attachment(t, "kube-system/router"); now.ContainerID != id || now.State != "held" || now.Lost {
				t.Errorf("the attachment is %+v; want %s held", now, id)
			}
			// No DEL can be queued for an unused ID.
			holder, err := os.ReadFile(filepath.Join(store, c.want))
			if err != nil || !strings.HasPrefix(string(holder), id+"-u") || string(holder) == string(first) {
				t.Errorf("the plugin holds %s for %q (%v); want it for an unused ID of %s", c.want, holder, err, id)
			}
			if plugin.CallCount(t, "CHECK") != 0 {
				t.Error("CHECK was called, which always succeeds")
			}
			s.Release(t, c.want)
			wantHolds(t, plugin, pods...)
		})
	}
}

func TestCalicoCHECKNotCalled(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "calico-ipam", nil)
	s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
	held := s.AllocateFor(t, "router")
	wantAddresses(t, s.AllocateFor(t, "router"), held)
	if checks, deletes := plugin.CallCount(t, "CHECK"), plugin.CallCount(t, "DEL"); checks != 0 || deletes == 0 {
		t.Errorf("%d CHECKs and %d DELs; want no CHECK, and a DEL before the ADD", checks, deletes)
	}
	s.Kill(t)
	n.WipeJournal(t)

	s = n.Start(t, "--enable-ipv6=false")
	now := s.AllocateFor(t, "router")
	wantHolds(t, plugin, now...)
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
