package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// testSymptoms makes pods stay in ContainerCreating. The kubelet's Event has the text of a row of
// docs/troubleshooting.md, and the remedy of the row lets the pod start.
func (tb *testbed) testSymptoms(t *testing.T) {
	tb.ensurePods(t)
	n := tb.nodes[0]

	agent := n.signal(t, daemon("cilium-agent"), syscall.SIGSTOP)
	tb.createPodOn(t, n, "without-agent")
	tb.waitSandboxError(t, "without-agent", "unable to connect to Cilium agent")
	harness.Must(t, syscall.Kill(agent, syscall.SIGCONT))
	tb.waitPodOn(t, n, "without-agent")
	tb.waitHealthy(t, "the agent to continue")

	patch := func(operation string) {
		var steps []string
		for _, flag := range []string{"--max-allocate=3", "--min-allocate=3", "--pre-allocate=1", "--excess-ip-release-delay=10s"} {
			steps = append(steps, fmt.Sprintf(`{"op":%q,"path":"/spec/template/spec/containers/0/args/0","value":%q}`, operation, flag))
		}
		tb.mustKubectl(t, "--namespace", systemNamespace, "patch", "daemonset", "delegated-ipam-bridge", "--type=json", "--patch", "["+strings.Join(steps, ",")+"]")
	}
	patch("add") // fewer than the node needs: no slot is free
	tb.waitHealthy(t, "the bridge to have another limit")
	cluster.MustEventually(t, "the bridge to release the free addresses", convergeTimeout, func() error {
		state, err := tb.nodeState(t.Context(), n)
		if free := len(state.Pool) - len(state.Used); err == nil && free > 0 {
			err = fmt.Errorf("%d addresses are free", free)
		}
		return err
	})
	tb.createPodOn(t, n, "without-address")
	tb.waitSandboxError(t, "without-address", "no IPs currently available on the node")
	patch("remove")
	tb.waitPodOn(t, n, "without-address")
	tb.waitHealthy(t, "the bridge to have its limit again")
	tb.waitRecords(t, "after the symptoms")
}

// waitSandboxError waits for an Event of the kubelet about a pod, with a text that the page has.
func (tb *testbed) waitSandboxError(t *testing.T, pod, text string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(tb.root, "docs/troubleshooting.md"))
	harness.Must(t, err)
	if !strings.Contains(string(page), "`"+text+"`") {
		t.Errorf("the page does not have the text %q", text)
	}
	cluster.MustEventually(t, "an Event with "+text, convergeTimeout, func() error {
		events, err := listOf[corev1.Event](t.Context(), tb.Resource("", "v1", "events").Namespace(podNamespace),
			metav1.ListOptions{FieldSelector: "reason=FailedCreatePodSandBox,involvedObject.name=" + pod})
		if err == nil && !slices.ContainsFunc(events, func(e corev1.Event) bool { return strings.Contains(e.Message, text) }) {
			err = fmt.Errorf("%d Events have another text", len(events))
		}
		return err
	})
}
