package e2e

import (
	"net/http"
	"testing"
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
