package kubernetes

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// renderedFile is the CNI configuration that delegated-ipam-network renders.
const renderedFile = "/run/delegated-ipam/pods.conflist"

// releaseDelay is the default of the bridge's --excess-ip-release-delay.
const releaseDelay = 180 * time.Second

// testReboot kills all processes of a node together, and boots it. Nothing of /run survives.
func (tb *testbed) testReboot(t *testing.T) {
	tb.ensurePods(t)
	tb.waitRecords(t, "before the reboot")
	n := tb.nodes[0]
	before, err := tb.nodeState(t.Context(), n)
	harness.Must(t, err)

	begin := tb.reboot(t, n)
	tb.waitPods(t, "the pods of the rebooted node to be ready")
	tb.record(t, "from the end of all processes of a node until it and its pods are ready", time.Since(begin))
	tb.waitRecords(t, "after the reboot")
	tb.checkConnectivity(t)

	after, err := tb.nodeState(t.Context(), n)
	harness.Must(t, err)
	excessReleased := time.Since(begin) > releaseDelay
	kept := 0
	for ip, slot := range before.Pool {
		now, ok := after.Pool[ip]
		if !ok && before.Used[ip] == "" && excessReleased {
			continue
		}
		if !ok || now != slot {
			t.Errorf("%s was in slot %d of the pool before the reboot, and is now in %d (%v)", ip, slot, now, ok)
			continue
		}
		kept++
	}
	tb.record(t, "addresses in the node's pool that keep their slot over a reboot", fmt.Sprintf("%d of %d", kept, len(before.Pool)))
	tb.checkRenderedFirst(t, n)
}

// reboot kills all processes of a node together, boots it and waits until it is ready. It returns when it began.
func (tb *testbed) reboot(t *testing.T, n *node) time.Time {
	t.Helper()
	begin := time.Now()
	n.powerOff()
	n.boot(t)
	tb.route(t)
	tb.waitRestarted(t, n, begin)
	tb.waitHealthy(t, "the rebooted node to be ready")
	return begin
}

// waitRestarted waits until no container of the manifests on the node has a status from before the boot.
func (tb *testbed) waitRestarted(t *testing.T, n *node, boot time.Time) {
	t.Helper()
	cluster.MustEventually(t, "the containers of "+n.name+" to be started again", convergeTimeout, func() error {
		pods, err := listOf[corev1.Pod](t.Context(), tb.pods(metav1.NamespaceAll), metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name})
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

// checkRenderedFirst wants the sidecar to have become ready after the configuration was rendered.
func (tb *testbed) checkRenderedFirst(t *testing.T, n *node) {
	t.Helper()
	file, err := os.Stat(n.path(renderedFile))
	harness.Must(t, err)
	pod := tb.sidecarPod(t, n)
	for _, c := range pod.Status.Conditions {
		// The condition's time has whole seconds.
		if c.Type == corev1.PodReady && c.LastTransitionTime.Time.Before(file.ModTime().Truncate(time.Second)) {
			t.Errorf("the sidecar was ready at %s, and %s was rendered at %s", c.LastTransitionTime, renderedFile, file.ModTime())
		}
	}
	started := pod.Status.ContainerStatuses[0].State.Running.StartedAt
	tb.record(t, "from the start of the sidecar's container to its rendered configuration, after the reboot", file.ModTime().Sub(started.Time).Round(time.Second))
}

// sidecarPod returns the sidecar's pod on a node.
func (tb *testbed) sidecarPod(t *testing.T, n *node) corev1.Pod {
	t.Helper()
	pods, err := listOf[corev1.Pod](t.Context(), tb.pods(systemNamespace), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=delegated-ipam", FieldSelector: "spec.nodeName=" + n.name,
	})
	harness.Must(t, err)
	if len(pods) != 1 {
		t.Fatalf("%s has %d pods of the sidecar; want one", n.name, len(pods))
	}
	return pods[0]
}

// checkRendered returns nil if the rendered configuration contains a text.
func (n *node) checkRendered(want string) error {
	text, err := os.ReadFile(n.path(renderedFile))
	if err == nil && !strings.Contains(string(text), want) {
		err = fmt.Errorf("%s of %s is %s; want %s", renderedFile, n.name, text, want)
	}
	return err
}
