package e2e

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// After a restore a runtime may repeat an ADD with another network namespace: CHECK and DEL get that one.
//
//evidence:design/reliability the runtime repeats an ADD for another namespace
func TestContainerAddedElsewhere(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedContainers(t, nil)
	s := n.Start(t)
	pod := container{"0a1b", "eth0"}
	held := addContainer(t, s, pod)
	again := pod.request()
	again["netns"] = "/var/run/netns/restored"
	again["args"] = "IgnoreUnknown=1;K8S_POD_NAME=restored"
	cni(t, s, "add", again).WantStatus(t, http.StatusOK)
	wantHolds(t, plugin, held...)
	s.Kill(t) // the answer was durable
	s = n.Start(t)
	wantState(t, s, pod.owner(), "held")
	before := len(plugin.Calls(t))
	cni(t, s, "check", pod.request()).WantStatus(t, http.StatusOK)
	cni(t, s, "del", again).WantStatus(t, http.StatusOK)
	wantNoAttachment(t, s, pod.owner())
	wantHolds(t, plugin)
	var args []string
	for _, c := range plugin.Calls(t)[before:] {
		if got := c.Env["CNI_NETNS"]; got != "/var/run/netns/restored" && c.Verb != "VERSION" && c.Verb != "STATUS" {
			t.Errorf("%s had CNI_NETNS=%s; want the last one", c.Verb, got)
		}
		if c.Verb == "DEL" {
			args = append(args, c.Env["CNI_ARGS"])
		}
	}
	const sandbox = ";K8S_POD_INFRA_CONTAINER_ID=0a1b"
	// The plugin may know the addresses by the arguments of the first ADD.
	if want := []string{again["args"].(string) + sandbox, pod.request()["args"].(string) + sandbox}; len(args) != 2 || !slices.Contains(args, want[0]) || !slices.Contains(args, want[1]) {
		t.Errorf("DEL was run with %q; want %q in any order", args, want)
	}
}

// A configuration that host-local refuses in every verb leaves no record, which no DEL could remove.
//
//evidence:design/reliability an ADD whose configuration the plugin refuses in every verb
func TestContainerConfigRefused(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	host := func(gateway string) map[string]any {
		return map[string]any{"type": "host-local", "dataDir": n.StoreDir, "ranges": [][]map[string]string{{{"subnet": "10.15.0.0/24", "gateway": gateway}}}}
	}
	writeContainers(t, n, host("10.99.0.1"))
	s := n.Launch(t)
	s.WaitServing(t)
	pod := container{"0a1b", "eth0"}
	for range 2 {
		cni(t, s, "add", pod.request()).WantError(t, http.StatusBadGateway, "10.99.0.1")
		wantNoAttachment(t, s, pod.owner())
	}
	writeContainers(t, n, host("10.15.0.1"))
	s.WaitReady(t)
	held := addContainer(t, s, pod)
	// CHECK and DEL run with the recorded configuration.
	writeContainers(t, n, host("10.99.0.1"))
	harness.Eventually(t, "the configuration to be read", func() error {
		if err := s.Ready(); err == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	cni(t, s, "check", pod.request()).WantStatus(t, http.StatusOK)
	if again := addContainer(t, s, pod); again[0] != held[0] {
		t.Errorf("a repeated ADD returned %q; want %q", again, held)
	}
	cni(t, s, "del", pod.request()).WantStatus(t, http.StatusOK)
	wantNoAttachment(t, s, pod.owner())
	wantLeaseCount(t, n, 0)
}
