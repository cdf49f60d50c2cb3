// Package kubernetes tests the images and manifests on two real nodes: kubelets, containerd and
// cilium-agents, an API server with its controllers and scheduler. "make cluster-test" builds the
// programs and runs the test in separate namespaces; plain "go test" skips it. test/README.md describes
// requirements and cases.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	// apiHost and apiHost6 are the addresses of the API server, and of the nodes' router.
	apiHost, apiHost6 = "192.0.2.1", "2001:db8::1"
	// podRange and podRange6 are the ranges of which the controller manager gives each node a part.
	podRange, podRange6 = "10.244.0.0/16", "fd00:10:244::/56"
	// systemNamespace is the namespace of the manifests.
	systemNamespace = "kube-system"
	// convergeTimeout is when a test gives up waiting. It is long enough for a busy machine, so it
	// does not limit the time of any operation: the kubelet waits up to 5 minutes before it starts a
	// container again, and again if the container has ended meanwhile.
	convergeTimeout = 15 * time.Minute
)

// mode is the way in which agents and pods get their addresses.
type mode struct {
	// manifests is the kustomization under test.
	manifests string
	// agent is the program of the agents, agentFlags what it gets beside the flags of every agent.
	agent      string
	agentFlags []string
	// checkNode returns nil if the records of a node agree with each other and with the running pods.
	checkNode func(*testbed, context.Context, *node, []corev1.Pod) error
}

// bridgeMode is ipam mode crd: the bridge fills the pools of the agents.
func bridgeMode() mode {
	return mode{
		manifests: "deploy/kubernetes/overlays/with-bridge",
		agent:     "cilium-agent",
		agentFlags: []string{
			"--ipam=crd", "--ipam-cilium-node-update-rate=1s",
			"--write-cni-conf-when-ready=/etc/cni/net.d/05-cilium.conflist",
		},
		checkNode: (*testbed).checkPool,
	}
}

type testbed struct {
	*cluster.Cluster
	mode
	nodes []*node
	// dual enables IPv6.
	dual bool
	// root is the directory of the repository, built the output of build.sh, agentDir that of the agent's
	// suite, dir the directory of this run.
	root, built, agentDir, dir string
}

// newTestbed starts an API server and both nodes, which have neither Cilium's configuration nor the
// manifests yet. It skips the test outside the namespaces of run.sh.
func newTestbed(t *testing.T, m mode) *testbed {
	t.Helper()
	if os.Getenv("CLUSTER_TEST_NAMESPACED") == "" {
		t.Skip("the test needs root, containerd, a kubelet and separate namespaces; run 'make cluster-test'")
	}
	env := func(name string) string { return cluster.MustEnv(t, name, "cluster-test") }
	tb := &testbed{mode: m, root: env("CLUSTER_TEST_ROOT"), built: env("CLUSTER_TEST_DIR"), agentDir: env("CLUSTER_TEST_AGENT_DIR")}
	tb.dual = os.Getenv("CLUSTER_TEST_DUAL") != ""
	tb.dir = cluster.EmptyDir(t, tb.built, "run", t.Name())
	connectCluster(t)
	names := []string{"node-1", "node-2"}
	tb.Cluster = cluster.Start(t, cluster.Config{
		Dir:       tb.dir,
		APIServer: tb.bin("kube-apiserver"),
		Host:      apiHost,
		Controllers: &cluster.Controllers{
			ControllerManager: tb.bin("kube-controller-manager"), Scheduler: tb.bin("kube-scheduler"),
			PodCIDRs: strings.Join(tb.podRanges(), ","), Nodes: names,
		},
	})
	tb.CreateKinds(t, filepath.Join(tb.agentDir, "crds")) // as Cilium's operator does
	for i, name := range names {
		tb.nodes = append(tb.nodes, tb.newNode(t, name, 11+i))
	}
	for _, n := range tb.nodes {
		n.boot(t)
	}
	return tb
}

func (tb *testbed) podRanges() []string {
	if tb.dual {
		return []string{podRange, podRange6}
	}
	return []string{podRange}
}

func (tb *testbed) families() int { return len(tb.podRanges()) }

func (tb *testbed) bin(name string) string { return filepath.Join(tb.built, "bin", name) }

func (tb *testbed) record(t *testing.T, what string, value any) {
	t.Helper()
	cluster.Record(t, filepath.Join(tb.built, "measurements.md"), what, value)
}

func (tb *testbed) allAgentFlags() []string {
	return slices.Concat(ciliumagent.Flags(), tb.agentFlags, []string{
		"--k8s-kubeconfig-path=" + filepath.Join(tb.dir, "admin.kubeconfig"),
		"--ipv4-native-routing-cidr=" + podRange, "--ipv6-native-routing-cidr=" + podRange6,
		"--enable-ipv6=" + strconv.FormatBool(tb.dual),
		"--enable-endpoint-health-checking=true",
		"--enable-envoy-config=true", // the address of ingress; it needs no Envoy
	})
}

// node is a machine: a set of namespaces, whose first process is node.sh.
type node struct {
	name, ip, ip6 string
	// dir has the disk and the logs.
	dir     string
	machine *cluster.Program
}

func (tb *testbed) newNode(t *testing.T, name string, number int) *node {
	n := &node{name: name, ip: fmt.Sprintf("192.0.2.%d", number), ip6: fmt.Sprintf("2001:db8::%d", number), dir: filepath.Join(tb.dir, name)}
	check.Must(t, os.MkdirAll(n.dir, 0o755))
	ips := n.ip
	if tb.dual {
		ips += "," + n.ip6
	}
	env := []string{
		"NODE_NAME=" + n.name, "NODE_IP=" + n.ip, "NODE_IP6=" + n.ip6, "NODE_IPS=" + ips, "NODE_DIR=" + n.dir,
		"API_HOST=" + apiHost, "API_HOST6=" + apiHost6,
		"NODE_AGENT=" + tb.agent,
		"NODE_KUBECONFIG=" + tb.WriteKubeconfig(t, name, name, "default"),
	}
	command := []string{"bash", filepath.Join(tb.root, "test", "kubernetes", "node.sh")}
	n.machine = cluster.NewProgram(t, n.dir, "boot", env, append(command, tb.allAgentFlags()...)...)
	n.machine.InNamespaces(syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC)
	return n
}

func (n *node) boot(t *testing.T) {
	t.Helper()
	booted := filepath.Join(n.dir, "booted")
	check.Must(t, os.RemoveAll(booted))
	now := n.machine.MustStart(t)
	n.connect(t)
	cluster.MustEventually(t, n.name+" to boot", convergeTimeout, func() error {
		if !now.Running() {
			t.Fatalf("%s ended; see %s", n.name, filepath.Join(n.dir, "boot.log"))
		}
		_, err := os.Stat(booted)
		return err
	})
}

func (n *node) pid() int { return n.machine.Current().PID() }

func (n *node) path(file string) string { return fmt.Sprintf("/proc/%d/root%s", n.pid(), file) }

func (n *node) agent() ciliumagent.API {
	return ciliumagent.API{Socket: n.path("/run/cilium/cilium.sock")}
}

func (n *node) command(ctx context.Context, args ...string) (string, error) {
	enter := []string{"--target", strconv.Itoa(n.pid()), "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--"}
	return cluster.Run(exec.CommandContext(ctx, "nsenter", append(enter, args...)...))
}

// processes returns the IDs, as seen by the test, of the node's processes whose arguments match.
func (n *node) processes(match func(args []string) bool) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(line) == 0 || !match(strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")) {
			continue // another process, or it has ended
		}
		// A container has another PID namespace, but a cgroup below the node's.
		groups, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if err == nil && strings.Contains(strings.ReplaceAll(string(groups), "\n", "/\n"), n.cgroup()+"/") {
			found = append(found, pid)
		}
	}
	return found, nil
}

func (n *node) cgroup() string { return "/" + os.Getenv("CLUSTER_TEST_CGROUP") + "/" + n.name }

// bridge is the switch between the API server and the nodes. The kernel would choose another link-layer
// address when a node is connected again, and the other node would send to the old one.
const bridge, bridgeMAC = "br0", "02:00:00:00:00:01"

// connectCluster sets up the network of the API server. A service address leads to it without a
// kube-proxy, because it is the nodes' router.
func connectCluster(t *testing.T) {
	cluster.RunLines(t,
		"ip link add "+bridge+" address "+bridgeMAC+" type bridge",
		"ip addr add "+apiHost+"/24 dev "+bridge,
		"ip addr add "+apiHost6+"/64 dev "+bridge+" nodad",
		"ip link set "+bridge+" up",
		"ip addr add "+cluster.ServiceAddress+"/32 dev lo",
		"iptables -t nat -A PREROUTING -d "+cluster.ServiceAddress+" -p tcp --dport 443 -j REDIRECT --to-ports 6443",
	)
}

func (n *node) connect(t *testing.T) {
	t.Helper()
	_ = exec.Command("ip", "link", "del", n.name).Run() // of the previous boot, if the kernel has not removed it yet
	cluster.RunLines(t,
		fmt.Sprintf("ip link add %s type veth peer name eth0 netns %d", n.name, n.pid()),
		fmt.Sprintf("ip link set %s master %s up", n.name, bridge))
}

// route adds routes on each node to the podCIDRs of the other, as the route controller of a cloud
// does: the agents do not know the podCIDRs.
func (tb *testbed) route(t *testing.T) {
	t.Helper()
	for _, n := range tb.nodes {
		for _, other := range tb.nodes {
			if other == n {
				continue
			}
			for _, cidr := range tb.mustPodCIDRs(t, other) {
				via := other.ip
				if cidr.Addr().Is6() {
					via = other.ip6
				}
				_, err := n.command(t.Context(), "ip", "route", "replace", cidr.String(), "via", via)
				check.Must(t, err)
			}
		}
	}
}

func (tb *testbed) kubectl(ctx context.Context, args ...string) (string, error) {
	return cluster.Run(tb.admin(ctx, "kubectl", args...))
}

// admin returns the command of a program that reads KUBECONFIG, which runs in the repository.
func (tb *testbed) admin(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, tb.bin(program), args...)
	cmd.Dir = tb.root
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(tb.bin("kubectl"))+":"+os.Getenv("PATH"),
		"KUBECONFIG="+filepath.Join(tb.dir, "admin.kubeconfig"), "HOME="+tb.dir)
	return cmd
}

func (tb *testbed) mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tb.kubectl(t.Context(), args...)
	check.Must(t, err)
	return out
}

func listOf[T any](ctx context.Context, client dynamic.ResourceInterface, options metav1.ListOptions) ([]T, error) {
	list, err := client.List(ctx, options)
	if err != nil {
		return nil, err
	}
	var all []T
	var errs []error
	for _, item := range list.Items {
		one, err := as[T](&item)
		all, errs = append(all, one), append(errs, err)
	}
	return all, errors.Join(errs...)
}

func as[T any](object *unstructured.Unstructured) (one T, err error) {
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &one)
	return one, err
}

func (tb *testbed) kubeNode(ctx context.Context, n *node) (corev1.Node, error) {
	object, err := tb.Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return corev1.Node{}, err
	}
	return as[corev1.Node](object)
}

func (tb *testbed) rolledOut(ctx context.Context) error {
	sets, err := listOf[appsv1.DaemonSet](ctx, tb.Resource("apps", "v1", "daemonsets").Namespace(systemNamespace), metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(sets) == 0 {
		return errors.New("there is no DaemonSet")
	}
	for _, set := range sets {
		s := set.Status
		if s.ObservedGeneration != set.Generation || int(s.UpdatedNumberScheduled) != len(tb.nodes) || int(s.NumberReady) != len(tb.nodes) {
			return fmt.Errorf("DaemonSet %s: %d pods are current and %d ready; want %d", set.Name, s.UpdatedNumberScheduled, s.NumberReady, len(tb.nodes))
		}
	}
	return nil
}

func (tb *testbed) healthy(ctx context.Context) error {
	for _, n := range tb.nodes {
		object, err := tb.kubeNode(ctx, n)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(object.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("%s is not ready: %+v", n.name, object.Status.Conditions)
		}
		if err := n.agent().Healthy(ctx); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return tb.rolledOut(ctx)
}

func (tb *testbed) waitHealthy(t *testing.T, what string) {
	t.Helper()
	cluster.MustEventually(t, what, convergeTimeout, func() error { return tb.healthy(t.Context()) })
}
