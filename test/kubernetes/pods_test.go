package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	podNamespace = "default"
	// stablePods is the number of pods in testdata/pods.yaml, which run during all cases.
	stablePods = 40
)

// ensurePods creates the pods of testdata/pods.yaml, unless they exist, and waits until they are ready.
func (tb *testbed) ensurePods(t *testing.T) {
	t.Helper()
	tb.mustKubectl(t, "apply", "-f", "test/kubernetes/testdata/pods.yaml")
	tb.waitPods(t, "the pods to be ready")
}

func (tb *testbed) checkPods(t *testing.T, when string) {
	t.Helper()
	tb.ensurePods(t)
	tb.waitRecords(t, when)
	tb.checkConnectivity(t)
}

func (tb *testbed) waitPods(t *testing.T, what string) {
	t.Helper()
	tb.waitReady(t, what, stablePods, isStable)
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

func (tb *testbed) checkConnectivity(t *testing.T) {
	t.Helper()
	pods, err := tb.running(t.Context())
	check.Must(t, err)
	sources := map[string]string{}
	var fetch, want strings.Builder
	for _, p := range pods {
		if !isStable(p) {
			continue
		}
		sources[p.Spec.NodeName] = p.Name
		for _, ip := range p.Status.PodIPs {
			fmt.Fprintf(&fetch, "/bin/busybox timeout 5 /bin/busybox wget -q -O - http://%s/name; ", net.JoinHostPort(ip.IP, "8080"))
			fmt.Fprintln(&want, p.Name)
		}
	}
	if len(sources) != len(tb.nodes) {
		t.Fatalf("pods run on %d nodes; want %d", len(sources), len(tb.nodes))
	}
	for _, source := range sources {
		cluster.MustEventually(t, "responses to "+source, convergeTimeout, func() error {
			out, err := tb.kubectl(t.Context(), "--namespace", podNamespace, "exec", source, "--", "/bin/busybox", "sh", "-c", fetch.String())
			if err == nil && out != want.String() {
				err = fmt.Errorf("the pods answered %q; want %q", out, want.String())
			}
			return err
		})
	}
}

const (
	// churnPods is the number of pods that exist at the same time.
	churnPods = 8
	// churnLabel is the label of the pods that are created one by one.
	churnLabel = "app=churn"
	// churnPause is the time between a creation with a deletion, and the next.
	churnPause = 2 * time.Second
)

type churn struct {
	tb      *testbed
	cancel  context.CancelFunc
	ended   sync.WaitGroup
	created int
	failed  error
}

func (tb *testbed) startChurn(t *testing.T) *churn {
	ctx, cancel := context.WithCancel(t.Context())
	c := &churn{tb: tb, cancel: cancel}
	c.ended.Go(func() {
		for ; ctx.Err() == nil; _ = cluster.Sleep(ctx, churnPause) {
			c.step(context.WithoutCancel(ctx))
		}
	})
	return c
}

// step creates one pod, and deletes the oldest if there are too many.
func (c *churn) step(ctx context.Context) {
	if c.failed = errors.Join(c.failed, c.tb.Create(ctx, waitingPod(churnName(c.created)))); c.failed != nil {
		return
	}
	c.created++
	if oldest := c.created - churnPods; oldest > 0 {
		c.failed = c.delete(ctx, oldest-1)
	}
}

func (c *churn) delete(ctx context.Context, number int) error {
	err := c.tb.Pods(podNamespace).Delete(ctx, churnName(number), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// stop waits until all pods run, deletes them and waits until they are removed. It returns the number of
// pods that were created.
func (c *churn) stop(t *testing.T) int {
	t.Helper()
	c.cancel()
	c.ended.Wait()
	check.Must(t, c.failed)
	c.tb.waitReady(t, "the last pods to be ready", 0, anyPod)
	for number := range c.created {
		check.Must(t, c.delete(t.Context(), number))
	}
	c.tb.waitLeft(t, "the last pods to be deleted", 0)
	return c.created
}

// waitReady waits until the pods of a kind that are not being deleted are ready, at least a number.
func (tb *testbed) waitReady(t *testing.T, what string, least int, kind func(corev1.Pod) bool) {
	t.Helper()
	cluster.MustEventually(t, what, convergeTimeout, func() error {
		pods, err := tb.running(t.Context())
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range pods {
			switch {
			case !kind(p):
			case podReady(p):
				ready++
			default:
				err = fmt.Errorf("pod %s on %s is not ready", p.Name, p.Spec.NodeName)
			}
		}
		if ready < least {
			err = fmt.Errorf("%d pods are ready; want %d", ready, least)
		}
		return err
	})
}

// waitLeft waits until at most that many pods exist that the tests have created one by one.
func (tb *testbed) waitLeft(t *testing.T, what string, most int) {
	t.Helper()
	cluster.MustEventually(t, what, convergeTimeout, func() error {
		pods, err := tb.Pods(podNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: churnLabel})
		if err == nil && len(pods.Items) > most {
			err = fmt.Errorf("%d pods are left", len(pods.Items))
		}
		return err
	})
}

// startPodOn creates a pod on a node, and waits until it is ready. Statuses may be old for a while
// after a kill; a new pod needs all parts.
func (tb *testbed) startPodOn(t *testing.T, n *node, name string) {
	t.Helper()
	tb.createPodOn(t, n, name)
	tb.waitPodOn(t, n, name)
}

func (tb *testbed) waitPodOn(t *testing.T, n *node, name string) {
	t.Helper()
	cluster.MustEventually(t, "a new pod on "+n.name, convergeTimeout, func() error {
		object, err := tb.Pods(podNamespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p, err := as[corev1.Pod](object)
		if err == nil && !podReady(p) {
			err = fmt.Errorf("pod %s is not ready: %s", name, p.Status.Phase)
		}
		return err
	})
	check.Must(t, tb.Pods(podNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func (tb *testbed) createPodOn(t *testing.T, n *node, name string) {
	t.Helper()
	pod := waitingPod(name)
	check.Must(t, unstructured.SetNestedField(pod.Object, n.name, "spec", "nodeName"))
	check.Must(t, tb.Create(t.Context(), pod))
}

func churnName(number int) string { return fmt.Sprintf("churn-%d", number) }

func waitingPod(name string) *unstructured.Unstructured {
	pod := cluster.Object("v1", "Pod", name)
	pod.SetNamespace(podNamespace)
	pod.SetLabels(map[string]string{"app": "churn"})
	pod.Object["spec"] = map[string]any{
		"automountServiceAccountToken":  false,
		"terminationGracePeriodSeconds": int64(1),
		"dnsPolicy":                     "Default",
		"containers":                    []any{map[string]any{"name": "wait", "image": "localhost/cluster-test/busybox:1", "imagePullPolicy": "Never"}},
	}
	return pod
}

// target is a program of a node; match reports whether arguments belong to it.
type target struct {
	name  string
	match func(args []string) bool
}

func daemonProgram() target {
	return target{"daemon", func(args []string) bool { return isProgram(args, "delegated-ipam", "serve") }}
}

func bridgeProgram() target {
	return target{"bridge", func(args []string) bool {
		return filepath.Base(args[0]) == "delegated-ipam-bridge" && !slices.Contains(args, "network")
	}}
}

func networkProgram() target {
	return target{"network", func(args []string) bool { return isProgram(args, "delegated-ipam-bridge", "network") }}
}

func isProgram(args []string, name, first string) bool {
	return len(args) > 1 && filepath.Base(args[0]) == name && args[1] == first
}

func daemon(name string) target {
	return target{name, func(args []string) bool { return filepath.Base(args[0]) == name }}
}

func (n *node) find(p target) (int, error) {
	pids, err := n.processes(p.match)
	if err != nil {
		return 0, err
	}
	if len(pids) != 1 {
		return 0, fmt.Errorf("%s runs %d processes of %s; want one", n.name, len(pids), p.name)
	}
	return pids[0], nil
}

// signal sends a signal to a program of the node, and returns its process.
func (n *node) signal(t *testing.T, p target, s syscall.Signal) int {
	t.Helper()
	var pid int
	// A process that has forked and not executed its program yet looks like its parent.
	cluster.MustEventually(t, "one process of "+p.name+" on "+n.name, convergeTimeout, func() (err error) {
		pid, err = n.find(p)
		return err
	})
	check.Must(t, syscall.Kill(pid, s))
	return pid
}

func (n *node) waitReplaced(t *testing.T, p target, old int) {
	t.Helper()
	cluster.MustEventually(t, p.name+" on "+n.name+" to be replaced", convergeTimeout, func() error {
		pid, err := n.find(p)
		if err == nil && pid == old {
			err = fmt.Errorf("process %d still runs", pid)
		}
		return err
	})
}

// testChaos kills each program on each node while pods are created and deleted.
func (tb *testbed) testChaos(t *testing.T) {
	tb.ensurePods(t)
	m, c := tb.startMonitor(t), tb.startChurn(t)
	kills := 0
	for _, p := range []target{daemon("kubelet"), daemon("containerd"), daemonProgram(), bridgeProgram(), networkProgram(), daemon("cilium-agent")} {
		var took []time.Duration
		for _, n := range tb.nodes {
			begin := time.Now()
			n.waitReplaced(t, p, n.signal(t, p, syscall.SIGKILL))
			tb.waitHealthy(t, p.name+" on "+n.name+" to recover")
			tb.waitPods(t, "the pods to be ready after "+p.name+" on "+n.name+" was killed")
			tb.startPodOn(t, n, fmt.Sprintf("after-%d", kills))
			took = append(took, time.Since(begin))
			kills++
		}
		tb.record(t, "from SIGKILL of "+p.name+" until all is ready and a new pod runs, on each node", fmt.Sprint(rounded(took)))
	}
	created := c.stop(t)
	tb.waitRecords(t, "after the kills")
	tb.checkConnectivity(t)
	tb.record(t, "kills; pods created and deleted meanwhile; comparisons without a duplicate", fmt.Sprintf("%d; %d; %d", kills, created, m.stop(t)))
}

func rounded(all []time.Duration) []time.Duration {
	for i := range all {
		all[i] = all[i].Round(100 * time.Millisecond)
	}
	return all
}

// hungTimeout is when testHung fails. The required limit is 100 s, which a slow machine may miss.
const hungTimeout = 150 * time.Second

// testHung stops a process of each program, on different nodes where two would need each other. The
// liveness probes must replace them.
func (tb *testbed) testHung(t *testing.T) {
	tb.ensurePods(t)
	m := tb.startMonitor(t)
	type hung struct {
		n   *node
		p   target
		pid int
	}
	all := []*hung{{n: tb.nodes[0], p: daemonProgram()}, {n: tb.nodes[1], p: bridgeProgram()}, {n: tb.nodes[1], p: networkProgram()}}
	begin := time.Now()
	for _, h := range all {
		h.pid = h.n.signal(t, h.p, syscall.SIGSTOP)
	}
	for _, h := range all {
		err := cluster.Eventually(t.Context(), time.Until(begin.Add(hungTimeout)), func() error {
			pid, err := h.n.find(h.p)
			if err == nil && pid == h.pid {
				err = errors.New("it still hangs")
			}
			return err
		})
		if err != nil {
			t.Errorf("%s on %s: %v", h.p.name, h.n.name, err)
			_ = syscall.Kill(h.pid, syscall.SIGCONT)
		}
	}
	tb.record(t, "from SIGSTOP of daemon, bridge and network program until the kubelet has replaced all", time.Since(begin))
	tb.waitHealthy(t, "the cluster to be healthy")
	tb.waitRecords(t, "after the replacement")
	m.stop(t)
}

// renderedFile is the CNI configuration that delegated-ipam-network renders.
const renderedFile = "/run/delegated-ipam-network/pods.conflist"

// releaseDelay is the default of the bridge's --excess-ip-release-delay.
const releaseDelay = 180 * time.Second

// testReboot kills all processes of a node together, and boots it. Nothing of /run survives.
func (tb *testbed) testReboot(t *testing.T) {
	tb.ensurePods(t)
	tb.waitRecords(t, "before the reboot")
	n := tb.nodes[0]
	before, err := tb.nodeState(t.Context(), n)
	check.Must(t, err)

	begin := tb.reboot(t, n)
	tb.waitPods(t, "the pods of the rebooted node to be ready")
	tb.record(t, "from the end of all processes of a node until it and its pods are ready", time.Since(begin))
	tb.waitRecords(t, "after the reboot")
	tb.checkConnectivity(t)

	after, err := tb.nodeState(t.Context(), n)
	check.Must(t, err)
	excessReleased := time.Since(begin) > releaseDelay
	for ip, slot := range before.Pool {
		now, ok := after.Pool[ip]
		if !ok && before.Used[ip] == "" && excessReleased {
			continue
		}
		if !ok || now != slot {
			t.Errorf("%s was in slot %d of the pool before the reboot, and is now in %d (%v)", ip, slot, now, ok)
		}
	}
	tb.checkRenderedFirst(t, n)
}

// reboot kills all processes of a node together, boots it and waits until it is ready. It returns when it began.
func (tb *testbed) reboot(t *testing.T, n *node) time.Time {
	t.Helper()
	begin := time.Now()
	n.machine.End(syscall.SIGKILL) // all processes of the node together
	n.boot(t)
	tb.route(t)
	tb.waitRestarted(t, n, begin)
	tb.waitHealthy(t, "the rebooted node to be ready")
	return begin
}

func (tb *testbed) waitRestarted(t *testing.T, n *node, boot time.Time) {
	cluster.MustEventually(t, "the containers of "+n.name+" to be started again", convergeTimeout, func() error {
		pods, err := listOf[corev1.Pod](t.Context(), tb.Pods(metav1.NamespaceAll), metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name})
		if err != nil {
			return err
		}
		for _, p := range pods {
			for _, c := range p.Status.ContainerStatuses {
				if c.State.Running == nil || c.State.Running.StartedAt.Time.Before(boot.Truncate(time.Second)) {
					return fmt.Errorf("container %s of pod %s has not been started again", c.Name, p.Name)
				}
			}
		}
		return nil
	})
}

func (tb *testbed) checkRenderedFirst(t *testing.T, n *node) {
	file, err := os.Stat(n.path(renderedFile))
	check.Must(t, err)
	if ready := readySince(tb.daemonPod(t, n)); ready.Before(file.ModTime().Truncate(time.Second)) {
		t.Errorf("the daemon was ready at %s, and %s was rendered at %s", ready, renderedFile, file.ModTime())
	}
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

func (tb *testbed) daemonPod(t *testing.T, n *node) corev1.Pod {
	t.Helper()
	pods, err := listOf[corev1.Pod](t.Context(), tb.Pods(systemNamespace), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=delegated-ipam", FieldSelector: "spec.nodeName=" + n.name,
	})
	check.Must(t, err)
	if len(pods) != 1 {
		t.Fatalf("%s has %d pods of the daemon; want one", n.name, len(pods))
	}
	return pods[0]
}

func (n *node) checkRendered(want string) error {
	text, err := os.ReadFile(n.path(renderedFile))
	if err == nil && !strings.Contains(string(text), want) {
		err = fmt.Errorf("%s of %s is %s; want %s", renderedFile, n.name, text, want)
	}
	return err
}

// testRecreated drains a node, deletes its Node and starts the machine again: the Node gets another
// podCIDR, and the disk still has the journal and the leases of the old one.
func (tb *testbed) testRecreated(t *testing.T) {
	tb.ensurePods(t)
	tb.waitRecords(t, "before the Node is deleted")
	n := tb.nodes[1]
	before := tb.mustPodCIDRs(t, n)
	tb.mustKubectl(t, "drain", n.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--disable-eviction")
	n.machine.End(syscall.SIGKILL) // all processes of the node together
	tb.mustKubectl(t, "delete", "node", n.name)
	cluster.MustEventually(t, "the CiliumNode of "+n.name+" to be deleted", convergeTimeout, func() error {
		_, err := tb.CiliumNodes().Get(t.Context(), n.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it exists"), err)
	})
	n.boot(t)
	after := tb.mustPodCIDRs(t, n)
	if slices.Equal(after, before) {
		t.Fatalf("the new Node has the podCIDRs %v again; want others", after)
	}
	tb.route(t)
	tb.waitHealthy(t, "the new Node to be ready")
	tb.startPodOn(t, n, "recreated")
	tb.mustKubectl(t, "--namespace", podNamespace, "delete", "pods", "--selector=app=stable") // they spread again
	tb.waitPods(t, "the pods to be ready again")
	// That has every lease, pool entry and pod address of the node in the new podCIDRs.
	tb.waitRecords(t, "with other podCIDRs")
	tb.checkConnectivity(t)
	if report, code := tb.audit(t); code != 0 {
		t.Errorf("audit ended with %d: %+v; want no finding", code, report)
	}
}
