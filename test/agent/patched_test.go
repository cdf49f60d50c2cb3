package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

const ownersFlag = "--owners=router,health,ingress"

// newPatchedTestbed returns a testbed whose agent has the patch of deploy/cilium/agent: it gets its
// own addresses from the daemon, and cilium-cni gets the addresses of pods from host-local.
func newPatchedTestbed(t *testing.T, nw network) *testbed {
	t.Helper()
	tb := newTestbed(t, nw, shortDelays())
	tb.delegatePods(t, tb.hostLocal())
	tb.daemon = tb.newDaemon(t, "patched-daemon", ownersFlag)
	tb.agent = tb.newPatchedAgent(t, "patched-agent")
	return tb
}

func (tb *testbed) delegatePods(t *testing.T, ipam map[string]any) {
	tb.netConf = string(conflist(t, map[string]any{"type": "cilium-cni", "ipam": ipam}))
}

// newPatchedAgent defines an agent with the patch, with health checking and the ingress address.
func (tb *testbed) newPatchedAgent(t *testing.T, name string, flags ...string) *cluster.Program {
	t.Helper()
	return tb.newAgent(t, name, patchedAgent, append(patchedFlags(), flags...)...)
}

const patchedAgent = "cilium-agent-delegated"

func patchedFlags() []string {
	return append(healthAndIngress(), "--ipam=delegated-plugin", "--delegated-ipam-socket="+daemonSocket)
}

// newStockAgent defines the same agent without the patch: without health checking and ingress, and
// with a link-local address for the router.
func (tb *testbed) newStockAgent(t *testing.T) *cluster.Program {
	t.Helper()
	return tb.newAgent(t, "stock-agent", "cilium-agent", "--ipam=delegated-plugin", "--local-router-ipv4=169.254.23.0", "--local-router-ipv6=fe80::23:1",
		"--enable-endpoint-health-checking=false")
}

type agentAddresses map[string][]netip.Addr

// mustAgentAddresses waits until the agent's addresses, the daemon's list and the plugin's store
// agree about these owners, and returns the addresses. The store has no lease but those and the
// addresses of the given pods.
func (tb *testbed) mustAgentAddresses(t *testing.T, owners []string, pods ...*pod) agentAddresses {
	t.Helper()
	var got agentAddresses
	cluster.MustEventually(t, "agent, daemon and plugin to agree", time.Minute, func() (err error) {
		got, err = tb.compareRecords(t.Context(), owners, pods)
		return err
	})
	return got
}

func (tb *testbed) wantSameAddresses(t *testing.T, when string, before agentAddresses, owners []string, pods ...*pod) {
	t.Helper()
	now := tb.mustAgentAddresses(t, owners, pods...)
	for _, owner := range owners {
		if !slices.Equal(now[owner], before[owner]) {
			t.Errorf("%s: %s has %v; want %v", when, owner, now[owner], before[owner])
		}
	}
}

// compareRecords returns the addresses of the owners if agent, daemon and host-local agree.
func (tb *testbed) compareRecords(ctx context.Context, owners []string, pods []*pod) (agentAddresses, error) {
	node, err := tb.ciliumNode(ctx, nodeName)
	if err != nil {
		return nil, err
	}
	agent := specAddresses(node)
	listed, err := listAttachments()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, owner := range owners {
		errs = append(errs, tb.checkFamilies(agent[owner]))
	}
	if len(listed) != len(owners) {
		errs = append(errs, fmt.Errorf("the daemon lists %d attachments; want %d", len(listed), len(owners)))
	}
	want := harness.Leases(listed)
	for _, a := range listed {
		var ips []netip.Addr
		for _, address := range a.Addresses {
			ips = append(ips, address.IP)
		}
		if ips = sorted(ips); a.State != "held" || !slices.Equal(ips, agent[a.Owner]) {
			errs = append(errs, fmt.Errorf("the daemon's %s is %s with %v; the agent has %v", a.Owner, a.State, ips, agent[a.Owner]))
		}
	}
	for _, p := range pods {
		for _, ip := range p.ips {
			want = append(want, oracle.Lease{Network: networkName, IP: ip, ContainerID: p.sandbox, Interface: "eth0"})
		}
	}
	return agent, errors.Join(append(errs, tb.compareStore(want))...)
}

// listAttachments returns the daemon's list. The daemon may be starting.
func listAttachments() ([]harness.Attachment, error) {
	return harness.Client{Socket: daemonSocket}.TryList()
}

// compareStore returns nil if the plugin's store has exactly these leases. Of the scripted plugin the
// addresses are compared, because its plugin types identify a holder differently.
func (tb *testbed) compareStore(want []oracle.Lease) error {
	if tb.scriptedDir == "" {
		leases, err := oracle.HostLocal(tb.path("host-local"))
		return errors.Join(err, oracle.Compare(leases, want))
	}
	stored, err := os.ReadDir(filepath.Join(tb.scriptedDir, "store"))
	if err != nil {
		return err
	}
	var leases, held []oracle.Lease
	for _, e := range stored {
		ip, err := netip.ParseAddr(e.Name())
		if err != nil {
			return err
		}
		leases = append(leases, oracle.Lease{IP: ip})
	}
	for _, l := range want {
		held = append(held, oracle.Lease{IP: l.IP})
	}
	return oracle.Compare(leases, held)
}

// specAddresses returns the addresses that the agent has written into its CiliumNode.
func specAddresses(node *unstructured.Unstructured) agentAddresses {
	all := agentAddresses{}
	add := func(owner, text string) {
		if ip, err := netip.ParseAddr(text); err == nil {
			all[owner] = sorted(append(all[owner], ip))
		}
	}
	entries, _, _ := unstructured.NestedSlice(node.Object, "spec", "addresses")
	for _, e := range entries {
		if fields, _ := e.(map[string]any); fields["type"] == "CiliumInternalIP" {
			ip, _ := fields["ip"].(string)
			add("router", ip)
		}
	}
	for _, owner := range []string{"health", "ingress"} {
		for _, key := range []string{"ipv4", "ipv6"} {
			ip, _, _ := unstructured.NestedString(node.Object, "spec", owner, key)
			add(owner, ip)
		}
	}
	return all
}

const patchedPods = 10

func TestPatchedAgent(t *testing.T) { testPatchedLifecycle(t, ipv4Only()) }

func TestPatchedAgentIPv6(t *testing.T) { testPatchedLifecycle(t, ipv6Only()) }

func TestPatchedAgentDualStack(t *testing.T) { testPatchedLifecycle(t, dualStack()) }

func testPatchedLifecycle(t *testing.T, nw network) {
	tb := newPatchedTestbed(t, nw)
	now := tb.agent.MustStart(t)
	// Without a daemon the agent waits, without its API socket.
	tb.waitForLog(t, tb.agent, 2*time.Minute, "level=warn.*"+daemonSocket)
	if _, err := os.Stat(agentSocket); !now.Running() || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an agent without addresses runs: %v, with a socket: %v; want that it waits without one", now.Running(), err)
	}
	tb.daemon.MustStart(t)
	tb.waitHealthy(t, now)

	own := tb.mustAgentAddresses(t, agentOwners())
	pods := tb.addPods(t, "p", patchedPods)
	tb.wantSameAddresses(t, "with pods", own, agentOwners(), pods...)
	checkConnectivity(t, own["health"], pods)
	tb.checkIngress(t, own["ingress"])

	check.Must(t, syscall.Kill(tb.daemon.Current().PID(), syscall.SIGSTOP))
	while := tb.addPods(t, "frozen", 1)
	check.Must(t, agentAPI().Healthy(t.Context()))
	checkPodsReachable(t, while...)
	check.Must(t, tb.dropPod(t.Context(), while[0]))
	check.Must(t, syscall.Kill(tb.daemon.Current().PID(), syscall.SIGCONT))

	tb.agent.End(syscall.SIGKILL)
	tb.start(t, tb.agent)
	tb.wantSameAddresses(t, "after a restart of the agent", own, agentOwners(), pods...)
	checkPodsReachable(t, pods...)

	tb.dropPods(t, pods)
	tb.wantSameAddresses(t, "after the pods", own, agentOwners())
	checkEndsOnSIGTERM(t, tb.daemon)
}

func (tb *testbed) addPods(t *testing.T, prefix string, count int) []*pod {
	t.Helper()
	var all []*pod
	for n := range count {
		p := &pod{name: fmt.Sprintf("%s%d", prefix, n)}
		check.Must(t, tb.addPod(t.Context(), p))
		all = append(all, p)
	}
	return all
}

func (tb *testbed) dropPods(t *testing.T, pods []*pod) {
	t.Helper()
	for _, p := range pods {
		check.Must(t, tb.dropPod(t.Context(), p))
	}
}

// ingressIdentity is Cilium's reserved identity of ingress (pkg/identity).
const ingressIdentity = "identity=8 "

// checkIngress wants the datapath to treat the addresses as addresses of ingress.
func (tb *testbed) checkIngress(t *testing.T, ips []netip.Addr) {
	t.Helper()
	for _, ip := range ips {
		cluster.MustEventually(t, "the ipcache to have the address of ingress", time.Minute, func() error {
			out, err := cluster.Run(exec.Command(tb.bin("cilium-dbg"), "bpf", "ipcache", "get", ip.String()))
			if err == nil && !strings.Contains(out, ingressIdentity) {
				err = fmt.Errorf("%s is %s; want %s", ip, out, ingressIdentity)
			}
			return err
		})
	}
}

func (tb *testbed) logOf(t *testing.T, p *cluster.Program) string {
	t.Helper()
	log, err := os.ReadFile(tb.path(p.Name() + ".log"))
	check.Must(t, err)
	return string(log)
}

func (tb *testbed) waitForLog(t *testing.T, p *cluster.Program, limit time.Duration, pattern string) {
	t.Helper()
	cluster.MustEventually(t, p.Name()+" to log "+pattern, limit, func() error {
		if !p.Current().Running() {
			t.Fatalf("%s ended; see its log in %s", p.Name(), tb.dir)
		}
		if !regexp.MustCompile(pattern).MatchString(tb.logOf(t, p)) {
			return errors.New("the log does not have it")
		}
		return nil
	})
}

// The agent releases the address of health when its CiliumNode has none. It continues to announce the
// address of ingress, and releases it when the BPF map is missing, as after a reboot.
func TestPatchedAgentFeaturesOff(t *testing.T) {
	tb := newPatchedTestbed(t, dualStack())
	tb.start(t, tb.daemon, tb.agent)
	own := tb.mustAgentAddresses(t, agentOwners())
	tb.checkIngress(t, own["ingress"]) // from there the next agent restores it

	tb.agent.End(syscall.SIGTERM)
	without := tb.newPatchedAgent(t, "agent-without-features", "--enable-endpoint-health-checking=false", "--enable-envoy-config=false")
	tb.start(t, without)
	tb.wantSameAddresses(t, "without health and ingress", own, []string{"router", "ingress"})

	without.End(syscall.SIGTERM)
	maps, err := filepath.Glob("/sys/fs/bpf/tc/globals/cilium_ipcache*")
	check.Must(t, err)
	if len(maps) == 0 {
		t.Fatal("the map of the ipcache is missing")
	}
	for _, m := range maps {
		check.Must(t, os.Remove(m))
	}
	tb.start(t, without)
	tb.wantSameAddresses(t, "after the loss of the BPF map", own, []string{"router"})

	without.End(syscall.SIGTERM)
	tb.start(t, tb.agent)
	now := tb.mustAgentAddresses(t, agentOwners())
	checkConnectivity(t, now["health"], nil)
}

// In a range that is too small the agent ends with the plugin's text. It starts when the range has
// grown.
func TestPatchedAgentFullRange(t *testing.T) {
	tb := newPatchedTestbed(t, ipv4Only())
	wide := tb.hostLocal()
	tb.subnets = []string{"10.42.0.0/30"} // of which the plugin keeps the gateway
	tb.writeNetwork(t, "net.d", tb.hostLocal())
	tb.daemon.MustStart(t)
	now := tb.agent.MustStart(t)
	cluster.MustEventually(t, "the agent to end", 2*time.Minute, func() error {
		if now.Running() {
			return errors.New("it runs")
		}
		return nil
	})
	reason := regexp.MustCompile(`(?m)^.*msg="Failed to start hive".*$`).FindString(tb.logOf(t, tb.agent))
	if !strings.Contains(reason, exhausted) || strings.Contains(reason, "ipam-range-full") {
		t.Errorf("the agent ended with %q; want %q in it, and no other reason", reason, exhausted)
	}

	tb.subnets = ipv4Only().subnets
	tb.writeNetwork(t, "net.d", wide)
	check.Must(t, syscall.Kill(tb.daemon.Current().PID(), syscall.SIGHUP))
	tb.start(t, tb.agent)
	tb.mustAgentAddresses(t, agentOwners())
}

// The plugin's range begins with the address of the node, which the agent refuses. The agent sends the name
// of its default pool with each request.
func TestPatchedAgentExcludedAddress(t *testing.T) {
	tb := newPatchedTestbed(t, ipv4Only())
	ipam := tb.hostLocal()
	tb.subnets = []string{"192.0.2.0/24"}
	node := tb.nodeIPs[0].String()
	ipam["ranges"] = [][]map[string]string{{{"subnet": tb.subnets[0], "rangeStart": node, "rangeEnd": "192.0.2.50"}}}
	tb.writeNetwork(t, "net.d", ipam)
	tb.daemon = tb.newDaemon(t, "excluding-daemon", ownersFlag, "--exclude-addresses="+node, "--ipam-default-ip-pool=blue")
	tb.agent = tb.newPatchedAgent(t, "blue-agent", "--ipam-default-ip-pool=blue")
	tb.start(t, tb.daemon, tb.agent)
	listed, err := listAttachments()
	check.Must(t, err)
	for _, a := range listed {
		if a.Pool != "blue" {
			t.Errorf("%s is in pool %q; want blue", a.Owner, a.Pool)
		}
		for _, address := range a.Addresses {
			if address.IP.String() == node {
				t.Errorf("%s has %s, the address of the node", a.Owner, node)
			}
		}
	}
	if len(listed) != len(agentOwners()) {
		t.Errorf("the daemon lists %d attachments; want those of the agent", len(listed))
	}
}

// The patched agent keeps its addresses over plugins that neither verify an address nor repeat an
// ADD (docs/reference/plugins.md), through SIGKILL of agent and daemon.
func TestPatchedAgentAzure(t *testing.T)  { testPatchedPlugin(t, "azure-ipam") }
func TestPatchedAgentCalico(t *testing.T) { testPatchedPlugin(t, "calico-ipam") }

func testPatchedPlugin(t *testing.T, pluginType string) {
	tb := newPatchedTestbed(t, ipv4Only())
	tb.installScripted(t, pluginType)
	tb.start(t, tb.daemon, tb.agent)
	own := tb.mustAgentAddresses(t, agentOwners())
	pods := tb.addPods(t, "p", 2)
	checkConnectivity(t, own["health"], pods)

	tb.restart(t, tb.daemon)
	tb.restart(t, tb.agent)
	tb.waitHealthy(t, tb.agent.Current())
	tb.wantSameAddresses(t, "after SIGKILL", own, agentOwners(), pods...)
	checkConnectivity(t, own["health"], pods)
	tb.dropPods(t, pods)
	tb.wantSameAddresses(t, "after the pods", own, agentOwners())
}

// installScripted makes daemon and cilium-cni use the scripted plugin as one of that type.
func (tb *testbed) installScripted(t *testing.T, pluginType string) {
	tb.scriptedDir = tb.path("scripted")
	check.Must(t, os.MkdirAll(filepath.Join(tb.scriptedDir, "queue"), 0o755)) // azure-ipam's deleteIDs
	check.Must(t, os.MkdirAll(tb.path("plugins"), 0o755))
	check.Must(t, os.Symlink(cluster.MustEnv(t, harness.EnvScripted, "agent-test"), tb.path("plugins", pluginType)))
	ipam := map[string]any{"type": pluginType, "scriptDir": tb.scriptedDir, "subnet": tb.subnets[0]}
	tb.writeNetwork(t, "net.d", ipam)
	tb.delegatePods(t, ipam)
	tb.pluginDir = tb.path("plugins")
	tb.daemon = tb.newDaemon(t, "scripted-daemon", ownersFlag)
}

const (
	secondNode = "node-2"
	// gateway2 and secondIP are the addresses of the cluster and of the second node on their link.
	gateway2 = "198.51.100.1"
	secondIP = "198.51.100.2"
	// secondSubnet is host-local's range on the second node.
	secondSubnet = "10.42.1.0/24"
)

// Two nodes with patched agents probe each other and each other's health endpoints, whose addresses
// host-local allocates.
func TestPatchedAgentTwoNodes(t *testing.T) {
	tb := newPatchedTestbed(t, ipv4Only())
	tb.start(t, tb.daemon, tb.agent)
	own := tb.mustAgentAddresses(t, agentOwners())

	tb.createNode(t, secondNode, []netip.Addr{netip.MustParseAddr(secondIP)})
	second := tb.newSecondNode(t)
	process := second.MustStart(t)
	tb.connectSecondNode(t, process.PID())
	var other agentAddresses
	cluster.MustEventually(t, "the agent of the second node to have its addresses", 3*time.Minute, func() error {
		if !process.Running() {
			t.Fatalf("the second node ended; see its log in %s", tb.dir)
		}
		node, err := tb.ciliumNode(t.Context(), secondNode)
		if err != nil {
			return err
		}
		other = specAddresses(node)
		return checkRange(other, secondSubnet)
	})
	for _, inNode := range [][]string{nil, {"nsenter", "--target=" + strconv.Itoa(process.PID()), "--mount", "--net", "--pid"}} {
		cluster.MustEventually(t, "both nodes and their health endpoints to be reachable", 5*time.Minute, func() error { return tb.checkClusterHealth(inNode) })
	}
	tb.checkIngress(t, other["ingress"]) // in the ipcache of the first node
	tb.wantSameAddresses(t, "with a second node", own, agentOwners())
}

func (tb *testbed) newSecondNode(t *testing.T) *cluster.Program {
	ipam := tb.hostLocal()
	ipam["ranges"], ipam["dataDir"] = [][]map[string]string{{{"subnet": secondSubnet}}}, tb.path("host-local-2")
	tb.writeNetwork(t, "net.d-2", ipam)
	command := slices.Concat(
		[]string{"bash", filepath.Join(tb.root, "test", "agent", "node.sh")},
		tb.daemonArgs(ownersFlag, "--node-name="+secondNode, "--state-dir="+tb.path("daemon-2"), "--cni-conf-dir="+tb.path("net.d-2")),
		[]string{"--"}, tb.agentArgs(patchedAgent, patchedFlags()...))
	env := append(tb.agentEnv(secondNode), "NODE_ADDRESSES="+secondIP+"/24", "NODE_GATEWAYS="+gateway2)
	second := cluster.NewProgram(t, tb.dir, secondNode, env, command...)
	second.InNamespaces(syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID)
	return second
}

// connectSecondNode connects a network namespace with the cluster, which routes between the nodes
// and their ranges, as a cloud does.
func (tb *testbed) connectSecondNode(t *testing.T, pid int) {
	cluster.RunLines(t,
		"ip link add eth0 netns "+strconv.Itoa(pid)+" type veth peer name node2 netns "+clusterNetns,
		"ip -n "+clusterNetns+" addr add "+gateway2+"/24 dev node2",
		"ip -n "+clusterNetns+" link set node2 up",
		"ip netns exec "+clusterNetns+" sysctl -q -w net.ipv4.ip_forward=1",
		"ip -n "+clusterNetns+" route add "+tb.subnets[0]+" via "+tb.nodeIPs[0].String(),
		"ip -n "+clusterNetns+" route add "+secondSubnet+" via "+secondIP,
	)
}

// checkClusterHealth returns nil if the agent of a node reaches both nodes and their endpoints.
func (tb *testbed) checkClusterHealth(prefix []string) error {
	args := append(slices.Clone(prefix), tb.bin("cilium-dbg"), "status", "--verbose")
	out, err := cluster.Run(exec.Command(args[0], args[1:]...))
	if health := regexp.MustCompile("(?m)^Cluster health:.*$").FindString(out); err == nil && !strings.Contains(health, "2/2 reachable") {
		err = fmt.Errorf("%q in %s", health, out)
	}
	return err
}

func checkRange(all agentAddresses, subnet string) error {
	for _, owner := range agentOwners() {
		if ips := all[owner]; len(ips) != 1 || !netip.MustParsePrefix(subnet).Contains(ips[0]) {
			return fmt.Errorf("%s has %v; want one address of %s", owner, ips, subnet)
		}
	}
	return nil
}

const killsDuringStart = 12

// The patched agent keeps its addresses, and the plugin's store agrees with the daemon, after
// SIGKILL of agent and daemon at any time.
func TestPatchedAgentKills(t *testing.T) {
	tb := newPatchedTestbed(t, dualStack())
	tb.start(t, tb.daemon, tb.agent)
	own := tb.mustAgentAddresses(t, agentOwners())
	pods := tb.addPods(t, "p", 2)

	for name, killed := range map[string][]*cluster.Program{"agent": {tb.agent}, "daemon": {tb.daemon}, "both": {tb.daemon, tb.agent}} {
		tb.restart(t, killed...)
		tb.waitHealthy(t, tb.agent.Current())
		tb.wantSameAddresses(t, "after SIGKILL of "+name, own, agentOwners(), pods...)
		checkPodsReachable(t, pods...)
	}

	seed := chaosSeed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for n := range killsDuringStart {
		killed := [][]*cluster.Program{{tb.agent}, {tb.daemon}, {tb.agent, tb.daemon}}[random.IntN(3)]
		_ = cluster.Sleep(t.Context(), randomDuration(random, 4*time.Second))
		tb.restart(t, killed...)
		tb.agent.Note(fmt.Sprintf("kill %d of seed %d", n, seed))
		if now := tb.agent.Current(); !now.Running() {
			tb.agent.MustStart(t) // as its supervisor does
		}
	}
	tb.restart(t, tb.agent)
	tb.waitHealthy(t, tb.agent.Current())
	tb.wantSameAddresses(t, fmt.Sprintf("after %d kills during starts, seed %d", killsDuringStart, seed), own, agentOwners(), pods...)
	checkConnectivity(t, own["health"], pods)

	tb.daemon.End(syscall.SIGKILL)
	check.Must(t, os.RemoveAll(tb.path("daemon")))
	tb.daemon.MustStart(t)
	tb.restart(t, tb.agent)
	tb.waitHealthy(t, tb.agent.Current())
	tb.wantSameAddresses(t, "after the loss of the journal", own, agentOwners(), pods...)
	checkConnectivity(t, own["health"], pods)

	// Without its state the agent does not know the endpoints of pods.
	tb.dropPods(t, pods)
	tb.agent.End(syscall.SIGKILL)
	check.Must(t, os.RemoveAll("/run/cilium/state"))
	check.Must(t, tb.CiliumNodes().Delete(t.Context(), nodeName, metav1.DeleteOptions{}))
	tb.start(t, tb.agent)
	tb.wantSameAddresses(t, "after the loss of the agent's state", own, agentOwners())
}

func (tb *testbed) restart(t *testing.T, programs ...*cluster.Program) {
	t.Helper()
	for _, p := range programs {
		if now := p.Current(); now.Running() {
			check.Must(t, syscall.Kill(now.PID(), syscall.SIGKILL))
		}
	}
	for _, p := range programs {
		<-p.Current().Done()
		p.MustStart(t)
	}
}

// TestPatchedAgentRestart restarts the stock agent, then the patched one, while the node and a pod
// connect to another pod. The restart of the patched agent fails no connection that the stock
// agent's does not.
func TestPatchedAgentRestart(t *testing.T) {
	tb := newPatchedTestbed(t, ipv4Only())
	tb.daemon.MustStart(t)
	stock := tb.newStockAgent(t)
	tb.start(t, stock)
	pods := tb.addPods(t, "p", 2)
	checkPodsReachable(t, pods...)

	stockFailed := tb.failedDuringRestart(t, stock, pods)
	stock.End(syscall.SIGTERM)
	tb.start(t, tb.agent)
	tb.mustAgentAddresses(t, agentOwners(), pods...)
	// The agent is healthy before it has changed the programs of the pods to its new router address.
	tb.waitForLog(t, tb.agent, time.Minute, "Finished regenerating restored endpoints")
	checkPodsReachable(t, pods...)
	if failed := tb.failedDuringRestart(t, tb.agent, pods); failed > 0 && stockFailed == 0 {
		t.Errorf("%d connections failed during the restart of the patched agent; want none, as with the stock agent", failed)
	}
}

// failedDuringRestart kills an agent and starts it again while the node and the second pod connect to
// the first pod, and returns the number of connections that failed.
func (tb *testbed) failedDuringRestart(t *testing.T, agent *cluster.Program, pods []*pod) int64 {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var tried, failed atomic.Int64
	var wg sync.WaitGroup
	for _, connect := range []func() error{
		func() error { return checkReachable(t.Context(), pods[0].name, pods[0].ips) },
		func() error { return pods[0].checkReachableFrom(t.Context(), pods[1]) },
	} {
		wg.Go(func() {
			for ; ctx.Err() == nil; _ = cluster.Sleep(ctx, 20*time.Millisecond) {
				tried.Add(1)
				if connect() != nil {
					failed.Add(1)
				}
			}
		})
	}
	tb.restart(t, agent)
	tb.waitHealthy(t, agent.Current())
	stop()
	wg.Wait()
	tb.record(t, agent.Name()+" restarted by SIGKILL: connections to a pod meanwhile; failed", fmt.Sprintf("%d; %d", tried.Load(), failed.Load()))
	return failed.Load()
}

// Agent and daemon are replaced in turns while pods run: stock agent to patched agent, a daemon
// that starts while the previous one still runs, back to the stock agent, and forward again. At the end the
// daemon loses journal and store.
func TestPatchedAgentUpgrades(t *testing.T) {
	tb := newPatchedTestbed(t, dualStack())
	stock := tb.newStockAgent(t)
	tb.start(t, stock)
	pods := tb.addPods(t, "before", 2)
	stock.End(syscall.SIGTERM)

	tb.start(t, tb.daemon, tb.agent)
	own := tb.mustAgentAddresses(t, agentOwners(), pods...)
	checkConnectivity(t, own["health"], pods)

	next := tb.newDaemon(t, "next-daemon", ownersFlag)
	waiting := next.MustStart(t)
	tb.waitForLog(t, next, time.Minute, "PID")
	checkEndsOnSIGTERM(t, tb.daemon)
	if !waiting.Running() {
		t.Fatalf("the next daemon ended; see its log in %s", tb.dir)
	}
	cluster.MustEventually(t, "the next daemon to serve", time.Minute, func() error {
		_, err := tb.compareRecords(t.Context(), agentOwners(), pods)
		return err
	})
	tb.restart(t, tb.agent)
	tb.waitHealthy(t, tb.agent.Current())
	tb.wantSameAddresses(t, "with the next daemon", own, agentOwners(), pods...)

	tb.agent.End(syscall.SIGTERM)
	tb.start(t, stock)
	checkPodsReachable(t, pods...)
	pods = append(pods, tb.addPods(t, "stock", 1)...)
	stock.End(syscall.SIGTERM)
	tb.start(t, tb.agent)
	tb.wantSameAddresses(t, "after a time with the stock agent", own, agentOwners(), pods...)
	checkConnectivity(t, own["health"], pods)

	// Without journal and store the daemon has only the agent's requests for its old addresses, one
	// family after the other. Both families stay, because each request names the address of the other.
	// Pods had the first addresses of the range, so an ADD without a request returns other ones.
	tb.dropPods(t, pods)
	tb.agent.End(syscall.SIGKILL)
	next.End(syscall.SIGKILL)
	check.Must(t, os.RemoveAll(tb.path("daemon")))
	check.Must(t, os.RemoveAll(tb.path("host-local")))
	tb.start(t, next, tb.agent)
	tb.wantSameAddresses(t, "after the loss of journal and store", own, agentOwners())
}
