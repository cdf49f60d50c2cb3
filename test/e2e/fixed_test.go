package e2e

import (
	"net/http"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// host-local gets the request of the runtime in each form, and what it refuses leaves nothing.
func TestFixedRequested(t *testing.T) {
	t.Parallel()
	n := containerNode(t)
	s := n.Start(t, "--exclude-addresses=10.15.0.99")
	requests := map[string]func(r map[string]any, ip string){
		"CNI_ARGS": func(r map[string]any, ip string) { r["args"] = "IgnoreUnknown=1;IP=" + ip },
		"args.cni.ips": func(r map[string]any, ip string) {
			r["cni-args"] = map[string]any{"cni": map[string]any{"ips": []string{ip}}}
		},
		"runtimeConfig.ips": func(r map[string]any, ip string) { r["runtime-config"] = map[string]any{"ips": []string{ip + "/24"}} },
	}
	for form, set := range requests {
		pod := container{"pod", "eth0"}
		r := pod.request()
		set(r, "10.15.0.77")
		cni(t, s, "add", r).WantStatus(t, http.StatusOK)
		wantLease(t, n, "10.15.0.77", pod)
		cni(t, s, "check", r).WantStatus(t, http.StatusOK)

		other := container{"other", "eth0"}.request()
		for ip, reason := range map[string]string{
			"10.15.0.77": "10.15.0.77",                  // the plugin's: it has another container
			"10.99.0.1":  "outside the ranges",          // known before the plugin is called
			"10.15.0.99": "excluded (--exclude-address", // as above
		} {
			set(other, ip)
			cni(t, s, "add", other).WantError(t, http.StatusBadGateway, reason)
		}
		cni(t, s, "del", other).WantStatus(t, http.StatusOK)
		wantLeaseCount(t, n, 1)
		cni(t, s, "del", r).WantStatus(t, http.StatusOK)
		wantLeaseCount(t, n, 0)
		if t.Failed() {
			t.Fatalf("requested by %s", form)
		}
	}
}

// A plugin that does not read the request returns another address, which is released.
func TestFixedRequestIgnored(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedContainers(t, map[string]any{"requests": []string{"args.cni.ips"}})
	s := n.Start(t)
	r := container{"pod", "eth0"}.request()
	r["args"] = "IgnoreUnknown=1;IP=10.15.0.77"
	cni(t, s, "add", r).WantError(t, http.StatusBadGateway, "the container runtime requested 10.15.0.77, plugin returned [10.15.0.2], which was released")
	if held := plugin.Holds(t); len(held) > 0 {
		t.Errorf("the plugin holds %v", held)
	}
	wantNoAttachment(t, s, "cni/pod/eth0")
}

// ofPod returns the request for a container of a pod.
func (c container) ofPod(name string) map[string]any {
	r := c.request()
	r["args"] = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + name
	return r
}

// A pod of a StatefulSet gets its address again, under the ID of its new container.
func TestFixedStatefulSet(t *testing.T) {
	t.Parallel()
	n := containerNode(t)
	n.Flags = append(n.Flags, "--release-delay=1h")
	s := n.Start(t)
	want := func(c container, ip string) {
		t.Helper()
		r := cni(t, s, "add", c.ofPod("web-0"))
		r.WantStatus(t, http.StatusOK)
		wantLease(t, n, ip, c)
		cni(t, s, "check", c.ofPod("web-0")).WantStatus(t, http.StatusOK)
	}
	first, second, third := container{"first", "eth0"}, container{"second", "eth0"}, container{"third", "eth0"}
	want(first, "10.15.0.2")
	cni(t, s, "del", first.ofPod("web-0")).WantStatus(t, http.StatusOK)
	wantLease(t, n, "10.15.0.2", first) // kept
	wantState(t, s, first.owner(), "cooldown")
	other := container{"other", "eth0"}
	addContainer(t, s, other)
	cni(t, s, "del", other.request()).WantStatus(t, http.StatusOK)

	want(second, "10.15.0.2")
	wantLease(t, n, "10.15.0.3", other) // kept
	wantLeaseCount(t, n, 2)
	cni(t, s, "del", first.ofPod("web-0")).WantStatus(t, http.StatusOK) // late
	store := n.Store
	n.PodsOf(t, harness.IPv4Only()).Del(t, first.id) // as after a rollback
	n.Store = store
	wantLease(t, n, "10.15.0.2", second)
	wantState(t, s, second.owner(), "held")

	s.Kill(t)
	n.Reboot(t)
	s = n.Start(t)
	want(third, "10.15.0.2")
	wantNoAttachment(t, s, second.owner())
	cni(t, s, "del", third.ofPod("web-0")).WantStatus(t, http.StatusOK)
	wantCommand(t, n, command{line: "release --all --yes", stdout: "10.15.0.2"})
	wantLeaseCount(t, n, 0)
}
