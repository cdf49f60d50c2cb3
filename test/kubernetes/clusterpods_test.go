package kubernetes

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// podRounds is how often roundPods pods are created and deleted.
	podRounds, roundPods = 10, 100
	// upgradePods is the number of pods whose start is measured.
	upgradePods = 20
)

// TestClusterPods runs the cases of pods that get their addresses through the sidecar. The nodes have
// the CNI configuration without it first, as docs/install/pods.md describes the change.
func TestClusterPods(t *testing.T) {
	tb := newTestbed(t, podsMode())
	tb.route(t)
	tb.writeNetworks(t, false)
	tb.install(t)
	tb.writeNetworks(t, true)
	for _, c := range []struct {
		name string
		run  func(*testbed, *testing.T)
	}{
		{"Rounds", (*testbed).testRounds},
		{"Upgrade", (*testbed).testPodsUpgrade},
		{"Symptoms", (*testbed).testPodsSymptoms},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(tb, t) })
	}
	tb.hold(t)
}

// testRounds creates and deletes pods, and kills a program on one node while they start, and one on the
// other while they end. In the middle a node is rebooted.
func (tb *testbed) testRounds(t *testing.T) {
	tb.waitRecords(t, "before the first pod")
	m := tb.startMonitor(t)
	programs := []target{sidecarProgram(), daemon("kubelet"), daemon("containerd")}
	var starts, ends []time.Duration
	var lost []string
	for round := range podRounds {
		first, second := tb.nodes[round%2], tb.nodes[(round+1)%2]
		begin := time.Now()
		tb.createPods(t, fmt.Sprintf("round-%d", round), roundPods)
		tb.waitReady(t, roundPods/3)
		first.signal(t, programs[round%len(programs)], syscall.SIGKILL)
		tb.waitReady(t, roundPods)
		starts = append(starts, time.Since(begin))
		t.Logf("round %d: %d pods are ready after %s", round, roundPods, starts[round])
		lost = append(lost, tb.collect(t)...)
		tb.waitRecords(t, "with all pods")
		if round == podRounds/2 {
			tb.rebootWithPods(t, first)
		}
		begin = time.Now()
		tb.deletePods(t)
		tb.waitLeft(t, "a third of the pods to be deleted", roundPods*2/3)
		second.signal(t, programs[(round+1)%len(programs)], syscall.SIGKILL)
		tb.waitLeft(t, "the pods to be deleted", 0)
		t.Logf("round %d: deleted after %s", round, time.Since(begin))
		ends = append(ends, time.Since(begin))
		tb.waitHealthy(t, "the killed programs to recover")
		lost = append(lost, tb.collect(t)...)
		tb.waitRecords(t, "without pods")
	}
	pods := fmt.Sprintf("%d pods, a program killed meanwhile: ", roundPods)
	tb.record(t, pods+"until all are ready", fmt.Sprint(rounded(starts)))
	tb.record(t, pods+"until all are deleted", fmt.Sprint(rounded(ends)))
	tb.record(t, "sandboxes that could not be created, and the kubelet tried again", tb.failedSandboxes(t))
	tb.record(t, "addresses of sandboxes that the killed containerd forgot, which GC released", len(lost))
	tb.record(t, "comparisons without a duplicate", m.stop(t))
}

// rebootWithPods reboots a node, and measures in which order the sidecar and the pods start.
func (tb *testbed) rebootWithPods(t *testing.T, n *node) {
	t.Helper()
	failed := tb.failedSandboxes(t)
	begin := tb.reboot(t, n)
	tb.waitReady(t, roundPods)
	tb.record(t, "from the end of all processes of a node until it and its pods are ready", time.Since(begin))
	pods, err := tb.running(t.Context())
	harness.Must(t, err)
	var started []time.Time
	for _, p := range pods {
		if p.Spec.NodeName == n.name {
			started = append(started, p.Status.ContainerStatuses[0].State.Running.StartedAt.Time)
		}
	}
	slices.SortFunc(started, time.Time.Compare)
	after := func(when time.Time) time.Duration { return when.Sub(begin).Round(time.Second) }
	sidecar := tb.sidecarPod(t, n)
	tb.record(t, "of this: until the sidecar runs; is ready; the first pod runs; the last", fmt.Sprintf("%s; %s; %s; %s",
		after(sidecar.Status.ContainerStatuses[0].State.Running.StartedAt.Time), after(readySince(sidecar)), after(started[0]), after(started[len(started)-1])))
	tb.record(t, "sandboxes that could not be created meanwhile", tb.failedSandboxes(t)-failed)
	tb.record(t, "addresses of the previous boot that neither sidecar nor runtime released", len(tb.collect(t)))
	tb.waitRecords(t, "after the reboot")
}

// testPodsUpgrade replaces the pods of the sidecar, and measures pods that are created meanwhile.
func (tb *testbed) testPodsUpgrade(t *testing.T) {
	m := tb.startMonitor(t)
	tb.record(t, fmt.Sprintf("%d pods, from creation to readiness", upgradePods), cluster.MedianAndMax(tb.timeStarts(t)))
	before, failed := map[*node]int{}, tb.failedSandboxes(t)
	for _, n := range tb.nodes {
		pid, err := n.find(sidecarProgram())
		harness.Must(t, err)
		before[n] = pid
	}
	tb.mustKubectl(t, "--namespace", systemNamespace, "rollout", "restart", "daemonset/delegated-ipam")
	for _, n := range tb.nodes {
		cluster.MustEventually(t, "the sidecar of "+n.name+" to end", convergeTimeout, func() error {
			pids, err := n.processes(sidecarProgram().match)
			if err == nil && slices.Contains(pids, before[n]) {
				err = fmt.Errorf("process %d still runs", before[n])
			}
			return err
		})
	}
	begin := time.Now()
	during := tb.timeStarts(t)
	tb.waitHealthy(t, "the sidecars to be replaced")
	tb.record(t, "the same while the sidecars of both nodes are replaced", cluster.MedianAndMax(during))
	tb.record(t, "sandboxes that could not be created meanwhile", tb.failedSandboxes(t)-failed)
	var ready []time.Duration
	for _, n := range tb.nodes {
		ready = append(ready, readySince(tb.sidecarPod(t, n)).Sub(begin))
	}
	tb.record(t, "from the end of the old sidecars until the new ones are ready", fmt.Sprint(rounded(ready)))
	tb.waitRecords(t, "after the upgrade")
	m.stop(t)
}

// timeStarts creates pods and deletes them. It returns the time after which each was seen to be ready.
func (tb *testbed) timeStarts(t *testing.T) []time.Duration {
	t.Helper()
	begin := time.Now()
	tb.createPods(t, "timed", upgradePods)
	took := map[string]time.Duration{}
	cluster.MustEventually(t, "the pods to be ready", convergeTimeout, func() error {
		pods, err := tb.running(t.Context())
		for _, p := range pods {
			if _, seen := took[p.Name]; !seen && podReady(p) {
				took[p.Name] = time.Since(begin)
			}
		}
		if err == nil && len(took) < upgradePods {
			err = fmt.Errorf("%d pods are ready; want %d", len(took), upgradePods)
		}
		return err
	})
	tb.deletePods(t)
	tb.waitLeft(t, "the pods to be deleted", 0)
	var all []time.Duration
	for _, d := range took {
		all = append(all, d)
	}
	return all
}

// createPods creates pods, in turn on each node.
func (tb *testbed) createPods(t *testing.T, prefix string, count int) {
	t.Helper()
	for i := range count {
		tb.createPodOn(t, tb.nodes[i%len(tb.nodes)], fmt.Sprintf("%s-%d", prefix, i))
	}
}

// deletePods starts to delete all pods that were created one by one.
func (tb *testbed) deletePods(t *testing.T) {
	t.Helper()
	harness.Must(t, tb.pods(podNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: churnLabel}))
}

// waitReady waits until that many pods are ready.
func (tb *testbed) waitReady(t *testing.T, want int) {
	t.Helper()
	cluster.MustEventually(t, "the pods to be ready", convergeTimeout, func() error {
		pods, err := tb.running(t.Context())
		ready := slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !podReady(p) })
		if err == nil && len(ready) < want {
			err = fmt.Errorf("%d pods are ready; want %d", len(ready), want)
		}
		return err
	})
}

// readySince returns since when a pod is ready; the time has whole seconds.
func readySince(p corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// failedSandboxes returns how often the kubelets could not create a pod's sandbox, so far.
func (tb *testbed) failedSandboxes(t *testing.T) int {
	t.Helper()
	events, err := listOf[corev1.Event](t.Context(), tb.Resource("", "v1", "events"), metav1.ListOptions{FieldSelector: "reason=FailedCreatePodSandBox"})
	harness.Must(t, err)
	count := 0
	for _, e := range events {
		count += max(1, int(e.Count))
	}
	return count
}
