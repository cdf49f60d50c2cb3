package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// ranges is the ipam section of a scripted plugin that gives IPv4 addresses.
func ranges() map[string]any {
	return map[string]any{"ranges": [][]map[string]string{{{"subnet": "10.15.0.0/24"}}}}
}

func TestWhereaboutsRefused(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "whereabouts", ranges())
	s := n.Launch(t, "--enable-ipv6=false")
	s.WaitServing(t)
	a := s.TryAllocate(t, harness.Request{Owner: "router"})
	unready := s.Ready()
	for _, says := range []string{"whereabouts", "reconciler", "--accept-unsafe-plugin"} {
		if a.Status != http.StatusBadGateway || !strings.Contains(string(a.Body), says) {
			t.Errorf("answered %s; want 502 and %q", a, says)
		}
		if unready == nil || !strings.Contains(unready.Error(), says) {
			t.Errorf("health says %v; want it not to be ready and to say %q", unready, says)
		}
	}
	if got := plugin.CallCount(t, "ADD"); got != 0 {
		t.Errorf("the refused plugin was asked for an address %d times", got)
	}
	s.Stop(t)
}

func TestWhereaboutsAccepted(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "whereabouts", ranges())
	s := n.Start(t, "--enable-ipv6=false", "--accept-unsafe-plugin", "--verify-interval=0s")
	router := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	health := s.Allocate(t, harness.Request{Owner: "health"}).Addresses()
	// Its CHECK always fails, so it must not be what decides.
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), router)
	wantHolds(t, plugin, append(router, health...)...)
	s.Release(t, router...)
	s.Release(t, health...)
	wantHolds(t, plugin)
}

// Trap: its ip-reconciler frees every reservation whose pod does not live. Nothing
// can notice that, which is why whereabouts is refused unless it is accepted.
func TestWhereaboutsReconciler(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "whereabouts", ranges())
	s := n.Start(t, "--enable-ipv6=false", "--accept-unsafe-plugin", "--verify-interval=0s")
	held := s.Allocate(t, harness.Request{Owner: "health"}).Addresses()
	plugin.Reconcile(t, "default/web")
	wantHolds(t, plugin)
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "health"}).Addresses(), held)
	wantHolds(t, plugin)
	if c := s.Health(t).DelegatedIPAM.Counters; c["lost"] != 0 {
		t.Errorf("the counters are %v; want the loss not to be noticed", c)
	}
	if err := s.Ready(); err != nil {
		t.Errorf("health says %v; want nothing to be noticed", err)
	}
}

// Trap: the garbage collection of calico frees what names an unknown pod, and
// keeps what names none, as ours do.
func TestCalicoGCKeepsHeld(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "calico-ipam", ranges())
	s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
	var held []string
	for _, owner := range []string{"router", "default/gone"} {
		held = append(held, s.Allocate(t, harness.Request{Owner: owner}).Addresses()...)
	}
	plugin.Reconcile(t, "default/web")
	wantHolds(t, plugin, held...)
}

// Trap: calico and azure have no STATUS. Their CNI library is from before 1.1.0.
func TestCalicoAzureWithoutSTATUS(t *testing.T) {
	t.Parallel()
	for _, pluginType := range []string{"calico-ipam", "azure-ipam"} {
		t.Run(pluginType, func(t *testing.T) {
			t.Parallel()
			n, plugin := scriptedNode(t, pluginType, ranges())
			plugin.SetScript(t, "STATUS", `{"error":{"cniVersion":"1.0.0","code":50,"msg":"the datastore is away"}}`)
			s := n.Start(t, "--enable-ipv6=false")
			if got := s.Health(t).DelegatedIPAM.Pools[0].CNIVersion; got != "1.0.0" {
				t.Errorf("the CNI version is %s; want 1.0.0, the highest that it knows", got)
			}
			s.Allocate(t, harness.Request{Owner: "kube-system/router"})
			if got := plugin.CallCount(t, "STATUS"); got != 0 {
				t.Errorf("it was called with STATUS %d times; want never", got)
			}
		})
	}
}

// Trap: azure honours no request for an address. What it gives in its place is nobody's,
// unless it is given back.
func TestAzureRestore(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "azure-ipam", ranges())
	s := n.Start(t, "--enable-ipv6=false")
	a := s.TryRestore(t, "10.15.0.77", "router")
	for _, says := range []string{"10.15.0.77", "10.15.0.2"} {
		if a.Status != http.StatusInternalServerError || !strings.Contains(string(a.Body), says) {
			t.Errorf("answered %s; want 500 and %q", a, says)
		}
	}
	if plugin.Received(t, "10.15.0.77") || !plugin.Received(t, "K8S_POD_NAME=") {
		t.Error("the plugin was told of 10.15.0.77, or of no pod; want a pod alone")
	}
	wantHolds(t, plugin)
	if s.Attachment(t, "router") != nil {
		t.Errorf("the refused owner is in the list: %+v", s.List(t))
	}
}

func TestSTATUSNotReady(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", ranges())
	s := n.Start(t, "--enable-ipv6=false")
	plugin.SetScript(t, "STATUS", `{"error":{"cniVersion":"1.1.0","code":50,"msg":"the datastore is away"}}`)
	harness.Eventually(t, "the health to say so in the plugin's words", func() error {
		if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "the datastore is away") {
			return fmt.Errorf("it says %v", err)
		}
		return nil
	})
	if got := s.Health(t).DelegatedIPAM.Pools[0].NotReady; !strings.Contains(got, "the datastore is away") {
		t.Errorf("the pool's not-ready is %q; want the plugin's words", got)
	}
	plugin.ClearScript(t, "STATUS")
	s.WaitReady(t)
}

func TestSTATUSUnsupported(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", ranges())
	supportOnly(t, plugin, "1.0.0")
	plugin.SetScript(t, "STATUS", `{"error":{"cniVersion":"1.0.0","code":50,"msg":"the datastore is away"}}`)
	n.Start(t, "--enable-ipv6=false")
	if got := plugin.CallCount(t, "STATUS"); got != 0 {
		t.Errorf("a plugin below CNI 1.1.0 was called with STATUS %d times", got)
	}
}

func TestAzureQueuedDEL(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "azure-ipam", ranges())
	s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
	before := s.Allocate(t, harness.Request{Owner: "kube-system/router"}).Addresses()
	plugin.StopDaemon(t)
	s.Release(t, before...)
	if queued := plugin.Queued(t); queued != 1 {
		t.Fatalf("%d releases are queued; want 1", queued)
	}
	wantHolds(t, plugin, before...)

	plugin.StartDaemon(t)
	now := s.Allocate(t, harness.Request{Owner: "kube-system/router"}).Addresses()
	if queued := plugin.Queued(t); queued != 0 {
		t.Fatalf("%d releases are still queued; want them carried out", queued)
	}
	wantHolds(t, plugin, now...)
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "kube-system/router"}).Addresses(), now)
	if c := s.Health(t).DelegatedIPAM.Counters; c["lost"] != 0 {
		t.Errorf("the counters are %v; want nothing lost", c)
	}
	s.Release(t, now...)
	wantHolds(t, plugin)
}

// Trap: azure says yes to every CHECK, so that it is asked by ADD. The question
// allocates where the address is lost, and what it allocates must not be kept.
func TestAzureLostAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// taken is what a pod has got meanwhile.
		taken      string
		want       string
		reacquired int64
	}{
		"the lost address is free again, and the owner gets it back": {want: "10.15.0.2", reacquired: 1},
		"a pod has the lost address, and the owner gets another":     {taken: "10.15.0.2", want: "10.15.0.3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, plugin := scriptedNode(t, "azure-ipam", ranges())
			s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
			wantAddresses(t, s.Allocate(t, harness.Request{Owner: "kube-system/router"}).Addresses(), []string{"10.15.0.2"})
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

			wantAddresses(t, s.Allocate(t, harness.Request{Owner: "kube-system/router"}).Addresses(), []string{c.want})
			wantHolds(t, plugin, append(pods, c.want)...)
			if counters := s.Health(t).DelegatedIPAM.Counters; counters["lost"] != 1 || counters["reacquired"] != c.reacquired {
				t.Errorf("the counters are %v; want 1 lost and %d reacquired", counters, c.reacquired)
			}
			if now := s.Attachment(t, "kube-system/router"); now.ContainerID != id || now.State != "held" || now.Lost {
				t.Errorf("the attachment is %+v; want %s held", now, id)
			}
			// For that ID nothing can be queued.
			holder, err := os.ReadFile(filepath.Join(store, c.want))
			if err != nil || !strings.HasPrefix(string(holder), id+"-u") || string(holder) == string(first) {
				t.Errorf("the plugin holds %s for %q (%v); want it for an ID of %s that was never used", c.want, holder, err, id)
			}
			if plugin.CallCount(t, "CHECK") != 0 {
				t.Error("its CHECK was called, which says yes whatever is asked")
			}
			s.Release(t, c.want)
			wantHolds(t, plugin, pods...)
		})
	}
}

func TestCalicoCHECKNotCalled(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "calico-ipam", ranges())
	s := n.Start(t, "--enable-ipv6=false", "--verify-interval=0s")
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	if checks, deletes := plugin.CallCount(t, "CHECK"), plugin.CallCount(t, "DEL"); checks != 0 || deletes == 0 {
		t.Errorf("%d CHECKs and %d DELs; want no CHECK, and a DEL before the ADD", checks, deletes)
	}
	s.Kill(t)
	n.WipeJournal(t)

	s = n.Start(t, "--enable-ipv6=false")
	now := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	wantHolds(t, plugin, now...)
}

// wantHolds waits until the plugin holds these addresses and no others: some
// releases are carried out in the background.
func wantHolds(t *testing.T, plugin harness.Scripted, ips ...string) {
	t.Helper()
	want := map[string]bool{}
	for _, ip := range ips {
		want[ip] = true
	}
	harness.Eventually(t, fmt.Sprintf("the plugin to hold %q", ips), func() error {
		held := plugin.Holds(t)
		for _, ip := range held {
			if !want[ip] {
				return fmt.Errorf("it holds %q", held)
			}
		}
		if len(held) != len(want) {
			return errors.New("it holds " + strings.Join(held, ", "))
		}
		return nil
	})
}
