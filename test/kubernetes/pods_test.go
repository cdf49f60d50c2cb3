package kubernetes

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	podNamespace = "default"
	// stablePods is the number of pods in testdata/pods.yaml, which run during all cases.
	stablePods = 40
)

func (tb *testbed) testPods(t *testing.T) {
	begin := time.Now()
	tb.ensurePods(t)
	tb.record(t, fmt.Sprintf("%d pods scheduled, with addresses and ready", stablePods), time.Since(begin))
	tb.waitRecords(t, "after the pods have started")
	pods, err := tb.running(t.Context())
	harness.Must(t, err)
	counts := map[string]int{}
	for _, p := range pods {
		counts[p.Spec.NodeName]++
	}
	for _, n := range tb.nodes {
		if want := stablePods / len(tb.nodes); counts[n.name] != want {
			t.Errorf("%d pods are on %s; want %d", counts[n.name], n.name, want)
		}
		tb.record(t, "distinct addresses of pods on "+n.name+", each in its podCIDRs, pool and host-local", counts[n.name]*tb.families())
	}
	tb.record(t, "HTTP requests from a pod on each node to every pod", tb.checkConnectivity(t))
}

// ensurePods creates the pods of testdata/pods.yaml, unless they exist, and waits until they are ready.
func (tb *testbed) ensurePods(t *testing.T) {
	t.Helper()
	tb.mustKubectl(t, "apply", "-f", "test/kubernetes/testdata/pods.yaml")
	tb.waitPods(t, "the pods to be ready")
}

// waitPods waits until all stable pods are ready.
func (tb *testbed) waitPods(t *testing.T, what string) {
	t.Helper()
	cluster.MustEventually(t, what, convergeTimeout, func() error {
		pods, err := tb.running(t.Context())
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range pods {
			if isStable(p) && podReady(p) {
				ready++
			}
		}
		if ready != stablePods {
			return fmt.Errorf("%d pods are ready; want %d", ready, stablePods)
		}
		return nil
	})
}

func isStable(p corev1.Pod) bool { return p.Labels["app"] == "stable" }

func podReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// checkConnectivity requests the name of every stable pod, from a pod on each node, and returns the
// number of requests.
func (tb *testbed) checkConnectivity(t *testing.T) int {
	t.Helper()
	pods, err := tb.running(t.Context())
	harness.Must(t, err)
	sources := map[string]string{}
	var fetch, want strings.Builder
	count := 0
	for _, p := range pods {
		if !isStable(p) {
			continue
		}
		sources[p.Spec.NodeName] = p.Name
		for _, ip := range p.Status.PodIPs {
			fmt.Fprintf(&fetch, "/bin/busybox timeout 5 /bin/busybox wget -q -O - http://%s/name; ", net.JoinHostPort(ip.IP, "8080"))
			fmt.Fprintln(&want, p.Name)
			count++
		}
	}
	if len(sources) != len(tb.nodes) {
		t.Fatalf("pods run on %d nodes; want %d", len(sources), len(tb.nodes))
	}
	for _, source := range sources {
		cluster.MustEventually(t, "responses to "+source, convergeTimeout, func() error { return tb.checkOutput(t.Context(), source, fetch.String(), want.String()) })
	}
	return count * len(sources)
}

// checkOutput runs a shell command in a pod, and compares its output.
func (tb *testbed) checkOutput(ctx context.Context, pod, command, want string) error {
	out, err := tb.kubectl(ctx, "--namespace", podNamespace, "exec", pod, "--", "/bin/busybox", "sh", "-c", command)
	if err == nil && out != want {
		err = fmt.Errorf("the pods answered %q; want %q", out, want)
	}
	return err
}
