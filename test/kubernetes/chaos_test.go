package kubernetes

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// target is a program of a node.
type target struct {
	name string
	// match reports whether the arguments belong to the program.
	match func(args []string) bool
}

func sidecarProgram() target {
	return target{"sidecar", func(args []string) bool { return isProgram(args, "delegated-ipam", "serve") }}
}

func bridgeProgram() target {
	return target{"bridge", func(args []string) bool {
		return filepath.Base(args[0]) == "delegated-ipam-bridge" && !slices.Contains(args, "network")
	}}
}

func networkProgram() target {
	return target{"network", func(args []string) bool { return isProgram(args, "delegated-ipam-bridge", "network") }}
}

// isProgram reports whether the arguments begin with a program and an argument.
func isProgram(args []string, name, first string) bool {
	return len(args) > 1 && filepath.Base(args[0]) == name && args[1] == first
}

// daemon is a service of node.sh.
func daemon(name string) target {
	return target{name, func(args []string) bool { return filepath.Base(args[0]) == name }}
}

// find returns the process of a program on the node.
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
	harness.Must(t, syscall.Kill(pid, s))
	return pid
}

// waitReplaced waits until another process of the program runs.
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
	for _, p := range []target{daemon("kubelet"), daemon("containerd"), sidecarProgram(), bridgeProgram(), networkProgram(), daemon("cilium-agent")} {
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
	tb.record(t, "containers started again by the kubelet since the installation", fmt.Sprint(tb.restarts(t)))
	created := c.stop(t)
	tb.waitRecords(t, "after the kills")
	tb.checkConnectivity(t)
	tb.record(t, "kills; pods created and deleted meanwhile; comparisons without a duplicate", fmt.Sprintf("%d; %d; %d", kills, created, m.stop(t)))
}

// restarts returns how often the kubelets have started the containers of each DaemonSet again. More than
// the kills are liveness probes that failed, and each lengthens the next recovery.
func (tb *testbed) restarts(t *testing.T) map[string]int32 {
	t.Helper()
	pods, err := listOf[corev1.Pod](t.Context(), tb.pods(systemNamespace), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name"})
	harness.Must(t, err)
	all := map[string]int32{}
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			all[p.Labels["app.kubernetes.io/name"]] += s.RestartCount
		}
	}
	return all
}

func rounded(all []time.Duration) []time.Duration {
	for i := range all {
		all[i] = all[i].Round(100 * time.Millisecond)
	}
	return all
}
