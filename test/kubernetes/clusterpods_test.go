package kubernetes

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	// podRounds is how often roundPods pods are created and deleted.
	podRounds, roundPods = 10, 100
	// upgradePods is the number of pods that start during the upgrade.
	upgradePods = 20
)

// TestClusterPods runs the cases of pods that get their addresses through the daemon. The nodes have
// the CNI configuration without it first, as docs/install/pods.md describes the change.
func TestClusterPods(t *testing.T) {
	tb := newTestbed(t, podsMode())
	tb.route(t)
	tb.writeNetworks(t, false)
	tb.install(t)
	tb.writeNetworks(t, true)
	tb.runCases(t, []testCase{
		{"Rounds", (*testbed).testRounds},
		{"Upgrade", (*testbed).testPodsUpgrade},
		{"Symptoms", (*testbed).testPodsSymptoms},
	})
}

// testRounds creates and deletes pods, and kills a program on one node while they start, and one on the
// other while they end. In the middle a node is rebooted.
func (tb *testbed) testRounds(t *testing.T) {
	tb.waitRecords(t, "before the first pod")
	m := tb.startMonitor(t)
	programs := []target{daemonProgram(), daemon("kubelet"), daemon("containerd")}
	var starts, ends []time.Duration
	var lost []string
	for round := range podRounds {
		first, second := tb.nodes[round%2], tb.nodes[(round+1)%2]
		begin := time.Now()
		tb.createPods(t, fmt.Sprintf("round-%d", round), roundPods)
		tb.waitReady(t, "a third of the pods to be ready", roundPods/3, podReady)
		first.signal(t, programs[round%len(programs)], syscall.SIGKILL)
		tb.waitReady(t, "the pods to be ready", roundPods, anyPod)
		starts = append(starts, time.Since(begin))
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
		ends = append(ends, time.Since(begin))
		tb.waitHealthy(t, "the killed programs to recover")
		lost = append(lost, tb.collect(t)...)
		tb.waitRecords(t, "without pods")
	}
	pods := fmt.Sprintf("%d pods, a program killed meanwhile: ", roundPods)
	tb.record(t, pods+"until all are ready", fmt.Sprint(rounded(starts)))
	tb.record(t, pods+"until all are deleted", fmt.Sprint(rounded(ends)))
	tb.record(t, "addresses of sandboxes that the killed containerd forgot, which GC released", len(lost))
	tb.record(t, "comparisons without a duplicate", m.stop(t))
}

// rebootWithPods reboots a node, and measures in which order the daemon and the pods start.
func (tb *testbed) rebootWithPods(t *testing.T, n *node) {
	failed, begin := tb.failedSandboxes(t), tb.reboot(t, n)
	tb.waitReady(t, "the pods to be ready", roundPods, anyPod)
	tb.record(t, "from the end of all processes of a node until it and its pods are ready", time.Since(begin))
	pods, err := tb.running(t.Context())
	check.Must(t, err)
	var started []time.Duration
	after := func(when time.Time) time.Duration { return when.Sub(begin).Round(time.Second) }
	for _, p := range pods {
		if p.Spec.NodeName == n.name {
			started = append(started, after(p.Status.ContainerStatuses[0].State.Running.StartedAt.Time))
		}
	}
	tb.record(t, "of this: until the daemon is ready; the first pod runs; the last", fmt.Sprintf("%s; %s; %s",
		after(readySince(tb.daemonPod(t, n))), slices.Min(started), slices.Max(started)))
	tb.record(t, "sandboxes that could not be created meanwhile", tb.failedSandboxes(t)-failed)
	tb.record(t, "addresses of the previous boot that neither daemon nor runtime released", len(tb.collect(t)))
	tb.waitRecords(t, "after the reboot")
}

// failedSandboxes returns how often the kubelets could not create a pod's sandbox, so far.
func (tb *testbed) failedSandboxes(t *testing.T) int {
	t.Helper()
	events, err := listOf[corev1.Event](t.Context(), tb.Resource("", "v1", "events"), metav1.ListOptions{FieldSelector: "reason=FailedCreatePodSandBox"})
	check.Must(t, err)
	count := 0
	for _, e := range events {
		count += max(1, int(e.Count))
	}
	return count
}

// testPodsUpgrade replaces the pods of the daemon while pods are created.
func (tb *testbed) testPodsUpgrade(t *testing.T) {
	m := tb.startMonitor(t)
	before, failed := map[*node]int{}, tb.failedSandboxes(t)
	for _, n := range tb.nodes {
		pid, err := n.find(daemonProgram())
		check.Must(t, err)
		before[n] = pid
	}
	tb.mustKubectl(t, "--namespace", systemNamespace, "rollout", "restart", "daemonset/delegated-ipam")
	for _, n := range tb.nodes {
		cluster.MustEventually(t, "the daemon of "+n.name+" to end", convergeTimeout, func() error {
			pids, err := n.processes(daemonProgram().match)
			if err == nil && slices.Contains(pids, before[n]) {
				err = fmt.Errorf("process %d still runs", before[n])
			}
			return err
		})
	}
	begin := time.Now()
	tb.createPods(t, "timed", upgradePods)
	tb.waitReady(t, "the pods to be ready", upgradePods, anyPod)
	tb.record(t, fmt.Sprintf("%d pods ready, created while the daemons of both nodes are replaced", upgradePods), time.Since(begin))
	tb.record(t, "sandboxes that could not be created meanwhile", tb.failedSandboxes(t)-failed)
	tb.deletePods(t)
	tb.waitLeft(t, "the pods to be deleted", 0)
	tb.waitHealthy(t, "the daemons to be replaced")
	for _, n := range tb.nodes {
		tb.record(t, "from the end of the old daemons until that of "+n.name+" is ready", readySince(tb.daemonPod(t, n)).Sub(begin).Round(time.Second))
	}
	tb.waitRecords(t, "after the upgrade")
	m.stop(t)
}

func (tb *testbed) createPods(t *testing.T, prefix string, count int) {
	t.Helper()
	for i := range count {
		tb.createPodOn(t, tb.nodes[i%len(tb.nodes)], fmt.Sprintf("%s-%d", prefix, i))
	}
}

func (tb *testbed) deletePods(t *testing.T) {
	t.Helper()
	check.Must(t, tb.Pods(podNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: churnLabel}))
}

func anyPod(corev1.Pod) bool { return true }
