package kubernetes

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// uninstallReleased waits as docs/install/bridge.md does until all addresses are released.
func (tb *testbed) uninstallReleased(t *testing.T) {
	t.Helper()
	// "kubectl wait" fails before the first pod exists.
	cluster.MustEventually(t, "the addresses to be released", convergeTimeout, func() error {
		_, err := tb.kubectl(t.Context(), "--namespace", systemNamespace, "wait", "pod", "--selector=app.kubernetes.io/name=delegated-ipam-uninstall",
			"--timeout=9m", "--for=jsonpath={.status.initContainerStatuses[1].state.terminated.reason}=Completed")
		return err
	})
}

// testUninstall follows docs/install/bridge.md, "Uninstall".
func (tb *testbed) testUninstall(t *testing.T) {
	tb.removePods(t)
	begin := time.Now()
	tb.mustKubectl(t, "delete", "-k", "deploy/kubernetes/base/bridge")
	tb.mustKubectl(t, "apply", "-k", "deploy/kubernetes/base/uninstall")
	tb.uninstallReleased(t)
	tb.mustKubectl(t, "--namespace", systemNamespace, "delete", "daemonset", "delegated-ipam", "delegated-ipam-network")
	tb.mustKubectl(t, "--namespace", systemNamespace, "rollout", "status", "daemonset", "delegated-ipam-uninstall", "--timeout=10m")
	tb.mustKubectl(t, "delete", "-k", "deploy/kubernetes/base/uninstall")
	tb.mustKubectl(t, "delete", "-k", tb.manifests(t), "--ignore-not-found")
	tb.record(t, "from the first command of docs/install/bridge.md to the last", time.Since(begin))
	tb.checkNothingLeft(t)
	tb.removePools(t)
}

// removePools deletes the CiliumNodes, whose pools the uninstall leaves, and restarts the agents, which
// create them again.
func (tb *testbed) removePools(t *testing.T) {
	t.Helper()
	for _, n := range tb.nodes {
		harness.Must(t, tb.ciliumNodes().Delete(t.Context(), n.name, metav1.DeleteOptions{}))
		agent := daemon("cilium-agent")
		n.waitReplaced(t, agent, n.signal(t, agent, syscall.SIGTERM))
	}
}

// removePods deletes all pods of the tests, which have addresses of the pool.
func (tb *testbed) removePods(t *testing.T) {
	t.Helper()
	tb.mustKubectl(t, "--namespace", podNamespace, "delete", "deployment", "stable", "--ignore-not-found")
	cluster.MustEventually(t, "the pods to be deleted", convergeTimeout, func() error {
		list, err := tb.pods(podNamespace).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(list.Items))
		}
		return err
	})
}

// checkNothingLeft wants neither leases, files nor processes on the nodes, nor objects in the cluster.
func (tb *testbed) checkNothingLeft(t *testing.T) {
	t.Helper()
	for _, n := range tb.nodes {
		leases, err := n.leases()
		harness.Must(t, err)
		if len(leases) > 0 {
			t.Errorf("%s: host-local still has %v", n.name, leases)
		}
		// The images remain in the runtime, and an empty directory until a reboot: a pod can empty a
		// directory that it mounts, but not remove it.
		paths, err := n.command(t.Context(), "find", "/etc", "/run", "/var/lib", "-xdev", "-name", "*delegated-ipam*", "-not", "-path", "*/containerd/*",
			"-not", "(", "-path", "/run/delegated-ipam", "-type", "d", "-empty", ")")
		harness.Must(t, err)
		if paths != "" {
			t.Errorf("%s: left are %s", n.name, strings.Join(strings.Fields(paths), ", "))
		}
		cluster.MustEventually(t, "the processes to end", convergeTimeout, func() error {
			ours, err := n.processes(func(args []string) bool { return strings.Contains(args[0], "delegated-ipam") })
			if err == nil && len(ours) > 0 {
				err = fmt.Errorf("%s still runs %v", n.name, ours)
			}
			return err
		})
	}
	cluster.MustEventually(t, "the objects of the cluster to be gone", convergeTimeout, func() error {
		if left := tb.ownObjects(t); len(left) > 0 {
			return fmt.Errorf("left in the cluster: %v", left)
		}
		return nil
	})
	tb.record(t, "left: leases, paths, processes, objects", 0)
}

// ownObjects returns the objects of the manifests in the cluster.
func (tb *testbed) ownObjects(t *testing.T) []string {
	t.Helper()
	kinds := strings.Fields(tb.mustKubectl(t, "api-resources", "--verbs=list", "--output=name"))
	var listed []string
	for _, kind := range kinds {
		if !strings.HasPrefix(kind, "events") { // the API server deletes them after an hour
			listed = append(listed, kind)
		}
	}
	var left []string
	for object := range strings.FieldsSeq(tb.mustKubectl(t, "get", strings.Join(listed, ","), "--all-namespaces", "--output=name", "--ignore-not-found")) {
		if strings.Contains(object, "delegated-ipam") {
			left = append(left, object)
		}
	}
	return left
}
