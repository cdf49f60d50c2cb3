// Package agent tests a real, unmodified cilium-agent with the daemon and the bridge, a real API
// server and the real host-local. "make agent-test" builds the programs and runs each test in
// separate namespaces; plain "go test" skips most tests. test/README.md describes requirements and tests.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	nodeName = "node-1"
	// daemonSocket and agentSocket have their default paths; /run is private to the test.
	daemonSocket = "/run/delegated-ipam/ipam.sock"
	agentSocket  = "/run/cilium/cilium.sock"
	// bridgeAddress is the bridge's --metrics-address, in the network namespace of the test.
	bridgeAddress = "127.0.0.1:9967"
	// networkName is the name of the delegated CNI network, and of host-local's directory.
	networkName = "pods"
	// clusterNetns is the namespace of etcd and the API server. The node is the namespace of the test.
	clusterNetns = "cluster"
	apiHost      = "192.0.2.1"
	apiHost6     = "2001:db8::1"
	// bridgeAccount is the service account of deploy/kubernetes/base/bridge. The agent is an administrator,
	// because the RBAC rules of Cilium's chart are not tested here.
	bridgeAccount = "kube-system:delegated-ipam-bridge"
	// allocatablePods is how many pods the node can have: the kubelet's default.
	allocatablePods = 110
)

// network has host-local's ranges, one of each family, and the addresses of the node.
type network struct {
	subnets []string
	nodeIPs []netip.Addr
}

func ipv4Only() network {
	return network{[]string{"10.42.0.0/24"}, []netip.Addr{netip.MustParseAddr("192.0.2.2")}}
}

func dualStack() network {
	nw := ipv4Only()
	nw.subnets = append(nw.subnets, "fd00:42::/112")
	nw.nodeIPs = append(nw.nodeIPs, netip.MustParseAddr("2001:db8::2"))
	return nw
}

func ipv6Only() network {
	both := dualStack()
	return network{both.subnets[1:], both.nodeIPs[1:]}
}

func (nw network) families() int { return len(nw.subnets) }

// familyFlags are those of agent and daemon.
func (nw network) familyFlags() []string {
	return []string{"--enable-ipv4=" + strconv.FormatBool(nw.has(netip.Addr.Is4)), "--enable-ipv6=" + strconv.FormatBool(nw.has(netip.Addr.Is6))}
}

func (nw network) has(is func(netip.Addr) bool) bool { return slices.ContainsFunc(nw.nodeIPs, is) }

// apiHost is the address of the API server: an IPv4 one, if the node has IPv4.
func (nw network) apiHost() string {
	if nw.has(netip.Addr.Is4) {
		return apiHost
	}
	return apiHost6
}

// connect sets up the networks of the node and of the API server.
func (nw network) connect(t *testing.T) {
	t.Helper()
	cluster.RunLines(t,
		"ip netns add "+clusterNetns,
		"ip -n "+clusterNetns+" link set lo up",
		"ip link add eth0 type veth peer name node netns "+clusterNetns,
		"ip -n "+clusterNetns+" addr add "+apiHost6+"/64 dev node nodad",
		"ip -n "+clusterNetns+" link set node up",
		"ip addr add 2001:db8::2/64 dev eth0 nodad",
		"ip link set eth0 up",
		"ip -6 route add default via "+apiHost6,
	)
	if nw.has(netip.Addr.Is4) {
		cluster.RunLines(t,
			"ip -n "+clusterNetns+" addr add "+apiHost+"/24 dev node",
			"ip addr add 192.0.2.2/24 dev eth0",
			"ip route add default via "+apiHost,
		)
	}
}

func (nw network) checkFamilies(ips []netip.Addr) error {
	for _, subnet := range nw.subnets {
		if in := netip.MustParsePrefix(subnet); len(ips) != nw.families() || !slices.ContainsFunc(ips, in.Contains) {
			return fmt.Errorf("has %v; want one of each of %s", ips, nw.subnets)
		}
	}
	return nil
}

// delays are the agent's --ipam-cilium-node-update-rate and the bridge's --excess-ip-release-delay.
type delays struct{ update, release time.Duration }

// shortDelays are the delays of tests that neither kill programs at random nor start many pods at the same time.
func shortDelays() delays { return delays{time.Second, 3 * time.Second} }

// testbed is a node and its cluster, with real programs.
type testbed struct {
	network
	*cluster.Cluster
	// dir has the files of this test, built is the output directory of build.sh, root the repository.
	dir, built, root string
	// netConf is the CNI configuration of cilium-cni.
	netConf string
	// chain is the directory of the primary CNI's configuration, to which the agent appends
	// cilium-cni; empty if cilium-cni is the primary CNI.
	chain string
	// calico is set if the plugin is calico-ipam, which has no files of host-local.
	calico bool
	// slots is how many slots an idle node has; 0 for ciliumagent.PreAllocate more than are used.
	slots int
	// pluginDir is the directory of the plugin that cilium-cni delegates to.
	pluginDir string
	// scriptedDir is the script directory of the scripted plugin; empty with host-local.
	scriptedDir string

	daemon, bridge, agent *cluster.Program
}

// newTestbed sets up the node's network and an API server with the node, and defines the programs. It
// skips the test outside the namespaces of run.sh.
func newTestbed(t *testing.T, nw network, d delays) *testbed {
	t.Helper()
	if os.Getenv("AGENT_TEST_NAMESPACED") == "" {
		t.Skip("the test needs root, a cilium-agent and separate namespaces; run 'make agent-test'")
	}
	env := func(name string) string { return cluster.MustEnv(t, name, "agent-test") }
	tb := &testbed{network: nw, netConf: agentsNetConf, built: env("AGENT_TEST_DIR"), root: env("AGENT_TEST_ROOT")}
	tb.pluginDir = filepath.Join(tb.root, ".cache", "plugins")
	tb.dir = cluster.EmptyDir(t, tb.built, "runs", t.Name())
	nw.connect(t)
	tb.Cluster = cluster.Start(t, cluster.Config{
		Dir: tb.dir, APIServer: tb.bin("kube-apiserver"), Host: nw.apiHost(),
		Exec: []string{"ip", "netns", "exec", clusterNetns}, ServiceAccounts: []string{bridgeAccount},
	})
	tb.WriteKubeconfig(t, "bridge", bridgeAccount, "default")
	tb.CreateKinds(t, tb.built+"/crds") // as Cilium's operator does
	tb.createNode(t, nodeName, tb.nodeIPs)
	tb.Apply(t, tb.root+"/deploy/kubernetes/base/bridge/rbac.yaml")

	// In crd mode only the daemon reads the CNI configuration: cilium-cni does not delegate.
	tb.writeNetwork(t, "net.d", tb.hostLocal())
	tb.daemon = tb.newDaemon(t, "daemon")
	check.Must(t, os.MkdirAll(tb.path("path"), 0o755))
	check.Must(t, os.Symlink(env("AGENT_TEST_CLANG"), tb.path("path", "clang")))
	tb.agent = tb.newAgent(t, "cilium-agent", "cilium-agent",
		append(healthAndIngress(), "--ipam=crd", "--ipam-cilium-node-update-rate="+d.update.String())...)
	tb.bridge = tb.newBridge(t, "bridge", "--excess-ip-release-delay="+d.release.String())
	return tb
}

func (tb *testbed) bin(name string) string { return filepath.Join(tb.binDir(), name) }

func (tb *testbed) binDir() string {
	return cmp.Or(os.Getenv("AGENT_TEST_BIN"), filepath.Join(tb.built, "bin"))
}

func (tb *testbed) ownProgram(name string) string {
	return filepath.Join(cmp.Or(os.Getenv("AGENT_TEST_OWN_BIN"), filepath.Join(tb.root, "bin")), name)
}

func (tb *testbed) path(name ...string) string {
	return filepath.Join(append([]string{tb.dir}, name...)...)
}

func (tb *testbed) record(t *testing.T, what string, value any) {
	t.Helper()
	cluster.Record(t, filepath.Join(tb.built, "measurements.md"), what, value)
}

// start starts programs, and waits until the last one, an agent, is healthy.
func (tb *testbed) start(t *testing.T, programs ...*cluster.Program) {
	t.Helper()
	for _, p := range programs {
		p.MustStart(t)
	}
	tb.waitHealthy(t, programs[len(programs)-1].Current())
}

func (tb *testbed) waitHealthy(t *testing.T, now *cluster.Process) {
	t.Helper()
	cluster.MustEventually(t, "the agent to be healthy", 3*time.Minute, func() error {
		if !now.Running() {
			t.Fatalf("the agent ended; see its log in %s", tb.dir)
		}
		return agentAPI().Healthy(t.Context())
	})
}

func agentAPI() ciliumagent.API { return ciliumagent.API{Socket: agentSocket} }

// newAgent defines an agent by its name in this test, its program, and flags in addition to the
// common ones.
func (tb *testbed) newAgent(t *testing.T, name, program string, flags ...string) *cluster.Program {
	t.Helper()
	return cluster.NewProgram(t, tb.dir, name, tb.agentEnv(nodeName), tb.agentArgs(program, flags...)...)
}

func (tb *testbed) agentEnv(node string) []string {
	return []string{
		"PATH=" + tb.path("path") + ":" + tb.binDir() + ":" + os.Getenv("PATH"),
		"K8S_NODE_NAME=" + node, "CILIUM_K8S_NAMESPACE=kube-system",
	}
}

func (tb *testbed) agentArgs(program string, flags ...string) []string {
	return slices.Concat([]string{
		tb.bin(program), "--lib-dir=" + filepath.Join(tb.built, "lib"),
		"--k8s-kubeconfig-path=" + tb.path("admin.kubeconfig"),
		"--ipv4-native-routing-cidr=10.42.0.0/16", "--ipv6-native-routing-cidr=fd00:42::/64",
	}, tb.familyFlags(), ciliumagent.Flags(), flags)
}

// healthAndIngress are the flags by which an agent has addresses for both; ingress needs no Envoy.
func healthAndIngress() []string {
	return []string{"--enable-endpoint-health-checking=true", "--enable-envoy-config=true"}
}

func agentOwners() []string { return []string{"router", "health", "ingress"} }

func (tb *testbed) newDaemon(t *testing.T, name string, flags ...string) *cluster.Program {
	t.Helper()
	return cluster.NewProgram(t, tb.dir, name, nil, tb.daemonArgs(flags...)...)
}

func (tb *testbed) daemonArgs(flags ...string) []string {
	return slices.Concat([]string{
		tb.ownProgram("delegated-ipam"), "serve", "--node-name=" + nodeName, "--socket-path=" + daemonSocket,
		"--state-dir=" + tb.path("daemon"), "--cni-conf-dir=" + tb.path("net.d"), "--cni-bin-dir=" + tb.pluginDir,
	}, tb.familyFlags(), flags)
}

func (tb *testbed) newBridge(t *testing.T, name string, flags ...string) *cluster.Program {
	t.Helper()
	return cluster.NewProgram(t, tb.dir, name, nil, append([]string{
		tb.ownProgram("delegated-ipam-bridge"), "--node-name=" + nodeName, "--kubeconfig=" + tb.path("bridge.kubeconfig"),
		"--host=unix://" + daemonSocket, "--metrics-address=" + bridgeAddress, "--pre-allocate=" + strconv.Itoa(ciliumagent.PreAllocate),
		"--max-above-watermark=0", // so that the number of slots follows from that of pods
	}, flags...)...)
}

func (tb *testbed) hostLocal() map[string]any {
	var ranges [][]map[string]string
	for _, subnet := range tb.subnets {
		ranges = append(ranges, []map[string]string{{"subnet": subnet}})
	}
	return map[string]any{"type": "host-local", "dataDir": tb.path("host-local"), "ranges": ranges}
}

func (tb *testbed) writeNetwork(t *testing.T, dir string, ipam map[string]any) {
	t.Helper()
	check.Must(t, os.MkdirAll(tb.path(dir), 0o755))
	writeConflist(t, tb.path(dir, "05-pods.conflist"), map[string]any{"type": "cilium-cni", "ipam": ipam})
}

func conflist(t *testing.T, plugin map[string]any) []byte {
	t.Helper()
	conf, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": networkName, "plugins": []any{plugin}})
	check.Must(t, err)
	return conf
}

func writeConflist(t *testing.T, file string, plugin map[string]any) {
	t.Helper()
	check.Must(t, os.WriteFile(file, conflist(t, plugin), 0o644))
}

func (tb *testbed) createNode(t *testing.T, name string, ips []netip.Addr) {
	t.Helper()
	addresses := []any{map[string]any{"type": "Hostname", "address": name}}
	for _, ip := range ips {
		addresses = append(addresses, map[string]any{"type": "InternalIP", "address": ip.String()})
	}
	created, err := tb.Nodes().Create(t.Context(), cluster.Object("v1", "Node", name), metav1.CreateOptions{})
	check.Must(t, err)
	created.Object["status"] = map[string]any{
		"addresses":   addresses,
		"conditions":  []any{map[string]any{"type": "Ready", "status": "True"}},
		"allocatable": map[string]any{"pods": strconv.Itoa(allocatablePods)},
	}
	_, err = tb.Nodes().UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	check.Must(t, err)
}

func (tb *testbed) ciliumNode(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	node, err := tb.CiliumNodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("the CiliumNode cannot be read: %w", err)
	}
	return node, nil
}

func (tb *testbed) nodeState(ctx context.Context) (b ciliumagent.NodeState, err error) {
	node, err := tb.ciliumNode(ctx, nodeName)
	if err != nil {
		return b, err
	}
	if b, err = ciliumagent.ReadNode(node); err != nil {
		return b, err
	}
	if tb.calico {
		b.Store, err = tb.calicoLeases(ctx)
	} else {
		b.Store, err = cluster.HostLocal(tb.path("host-local"))
	}
	return b, err
}

func (tb *testbed) checkConsistent(t *testing.T, pods int) error {
	b, err := tb.nodeState(t.Context())
	if err != nil {
		return err
	}
	used := (len(agentOwners()) + pods) * tb.families()
	if tb.slots > 0 {
		return b.CheckAtRest(used, tb.slots)
	}
	return b.CheckConsistent(used)
}

func (tb *testbed) waitConsistent(t *testing.T, pods int, limit time.Duration) {
	t.Helper()
	cluster.MustEventually(t, "the records to agree", limit, func() error { return tb.checkConsistent(t, pods) })
}
