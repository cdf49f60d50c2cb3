package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	// chainedSize is how many addresses host-local has for the range: not those of network, gateway and broadcast.
	chainedSize = 61
	// exhausted is host-local's error when it has none.
	exhausted = "no IP addresses available in range set"
)

// newChainedTestbed returns a testbed with a range that agent and pods exhaust, whose primary CNI is the real
// bridge plugin with host-local, and whose agent is chained behind it. The configuration of the primary CNI
// does not exist yet (installPrimary).
func newChainedTestbed(t *testing.T) *testbed {
	t.Helper()
	nw := ipv4Only()
	nw.subnets = []string{"10.42.0.0/26"}
	tb := newTestbed(t, nw, chaosDelays())
	tb.chain = tb.path("chain")
	check.Must(t, os.MkdirAll(tb.chain, 0o755))
	tb.daemon = tb.newDaemon(t, "chained-daemon", "--cni-conf-dir="+tb.chain, "--cni-network="+networkName)
	// The options of deploy/chart/chained.yaml.
	tb.bridge = tb.newBridge(t, "chained-bridge", "--min-allocate=3", "--max-allocate=3", "--pre-allocate=1", "--watch-pods=false")
	tb.agent = tb.newChainedAgent(t, "chained-agent", "--ipam=crd", "--ipam-cilium-node-update-rate=1s")
	return tb
}

// newChainedAgent defines an agent that appends cilium-cni to the primary CNI's chain, with the flags
// that Cilium's chart sets then: the primary CNI has the routes of the pods.
func (tb *testbed) newChainedAgent(t *testing.T, name string, flags ...string) *cluster.Program {
	t.Helper()
	return tb.newAgent(t, name, "cilium-agent", slices.Concat([]string{
		"--cni-chaining-mode=generic-veth", "--cni-chaining-target=" + networkName,
		"--write-cni-conf-when-ready=" + tb.chain + "/05-cilium.conflist", "--cni-exclusive=true",
		"--enable-endpoint-routes=false", "--enable-local-node-route=false", "--enable-host-legacy-routing=true",
	}, healthAndIngress(), flags)...)
}

// newChainedStock defines the same agent without the daemon, in ipam mode kubernetes: it takes its
// addresses from a range of the Node.
func (tb *testbed) newChainedStock(t *testing.T, podCIDR string) *cluster.Program {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"podCIDR":%q,"podCIDRs":[%q]}}`, podCIDR, podCIDR)
	check.Must(t, cluster.Patch(t.Context(), tb.Nodes(), nodeName, patch))
	return tb.newChainedAgent(t, "chained-stock", "--ipam=kubernetes")
}

func (tb *testbed) installPrimary(t *testing.T) {
	t.Helper()
	writeConflist(t, tb.chain+"/10-primary.conflist", map[string]any{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": tb.hostLocal()})
}

// Pods and the agent take addresses of one range until it is exhausted, while agent, bridge, daemon
// and API server are killed. No address belongs to two of them, and the agent keeps its own.
func TestChained(t *testing.T) {
	tb := newChainedTestbed(t)
	m, own := tb.startChained(t, tb.installPrimary)
	// With those of the churn the range is exhausted again and again.
	const churned = churnWorkers * podsEach
	m.fill(t, "s", chainedSize-len(own)-churned)
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { m.watchOverlap(ctx) })
	left := m.runChaos(t)
	cancel()
	watch.Wait()
	tb.restartAgent(t)
	m.fill(t, "t", churned-len(left))
	tb.installPrimary(t) // as its DaemonSet does at each start
	m.checkFullRange(t, own, exhausted)
}

// startChained starts all programs; the primary CNI is installed last. It returns the addresses of the agent.
func (tb *testbed) startChained(t *testing.T, install func(*testing.T)) (*monitor, []netip.Addr) {
	t.Helper()
	tb.daemon.MustStart(t)
	tb.bridge.MustStart(t)
	first := tb.agent.MustStart(t)
	install(t)
	tb.waitHealthy(t, first)
	cluster.MustEventually(t, "the agent to append cilium-cni to the chain", time.Minute, func() error {
		_, err := os.Stat(tb.chain + "/05-cilium.conflist")
		return err
	})
	m := startMonitor(t, tb)
	return m, m.mustChained(t)
}

func (m *monitor) fill(t *testing.T, prefix string, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	for n := range count {
		if p := (&pod{name: fmt.Sprint(prefix, n)}); !m.add(ctx, p) {
			t.Fatalf("pod %s does not start", p.name)
		}
	}
}

// checkFullRange wants the full range to have no address for another pod. It kills every program, and wants
// the addresses of the agent to be the same, the pods to be reachable, and no address to belong to two.
func (m *monitor) checkFullRange(t *testing.T, own []netip.Addr, exhausted string) {
	t.Helper()
	for _, p := range []*cluster.Program{m.bridge, m.daemon, m.agent} {
		p.End(syscall.SIGKILL)
	}
	m.daemon.MustStart(t)
	m.bridge.MustStart(t)
	m.restartAgent(t)
	surplus := &pod{name: "surplus"}
	if err := m.addPod(t.Context(), surplus); err == nil || !strings.Contains(err.Error(), exhausted) {
		t.Errorf("a pod more than the range has addresses: %v; want the error of the plugin", err)
	}
	check.Must(t, m.dropPod(t.Context(), surplus))
	m.waitPods(t, 5*time.Minute)
	if now := m.mustChained(t); !slices.Equal(now, own) {
		t.Errorf("at the end the agent has %v; want %v as at the begin", now, own)
	}
}

// mustChained waits until all records agree, and returns the addresses of the agent: they are the
// pool, and host-local's store has these, those of the running pods, and no other.
func (m *monitor) mustChained(t *testing.T) []netip.Addr {
	t.Helper()
	var own []netip.Addr
	cluster.MustEventually(t, "agent, pods and host-local to agree", 5*time.Minute, func() error {
		b, err := m.nodeState(t.Context())
		if err != nil {
			return err
		}
		own = nil
		for _, owner := range agentOwners() {
			own = append(own, b.UsedBy(owner)...)
		}
		own = sorted(own)
		all := slices.Clone(own)
		for _, r := range m.runningPods() {
			all = append(all, r.ips...)
		}
		if len(own) != len(agentOwners()) || len(b.Pool) != len(own) || len(b.Used) != len(own) || len(b.Store) != len(all) {
			return fmt.Errorf("the agent uses %v of the pool %v; host-local has %d leases; want %d", b.Used, b.Pool, len(b.Store), len(all))
		}
		for _, ip := range all {
			if !b.Store[ip] {
				return fmt.Errorf("%s has no lease of host-local", ip)
			}
		}
		return b.CheckUsedInPool()
	})
	return own
}

func (m *monitor) watchOverlap(ctx context.Context) {
	for ; ctx.Err() == nil; _ = cluster.Sleep(ctx, 200*time.Millisecond) {
		before := m.runningPods()
		b, err := m.nodeState(ctx)
		if err != nil {
			continue // the API server is down
		}
		for _, r := range m.stillRunning(before) {
			for _, ip := range r.ips {
				if _, published := b.Pool[ip]; published {
					m.addViolation("%s of pod %s is in the agent's pool", ip, r.name)
				}
			}
		}
	}
}

// The primary CNI is flannel's plugin, whose file has no ranges: it adds those of its daemon's file for
// each pod. The daemon has a file with the same name and ranges, as docs/install/chained.md renders it.
func TestChainedFlannel(t *testing.T) {
	flannel := os.Getenv("AGENT_TEST_FLANNEL")
	if flannel == "" {
		t.Skip("AGENT_TEST_FLANNEL is not set: expected the path of flannel's CNI plugin")
	}
	tb := newChainedTestbed(t)
	plugins := tb.path("plugins")
	check.Must(t, os.CopyFS(plugins, os.DirFS(tb.pluginDir)))
	tb.pluginDir = plugins
	cluster.RunLines(t, "install "+flannel+" "+plugins+"/flannel")
	subnets := "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.0.1/26\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
	check.Must(t, os.WriteFile(tb.path("subnet.env"), []byte(subnets), 0o600))
	writeConflist(t, tb.path("rendered.conflist"), map[string]any{"type": "bridge", "ipam": tb.hostLocal()})
	tb.daemon = tb.newDaemon(t, "flannel-daemon", "--cni-conf-file="+tb.path("rendered.conflist"))
	m, own := tb.startChained(t, func(t *testing.T) {
		writeConflist(t, tb.chain+"/10-flannel.conflist", map[string]any{
			"type": "flannel", "subnetFile": tb.path("subnet.env"), "dataDir": tb.path("flannel"),
			"delegate": map[string]any{"isDefaultGateway": true, "ipMasq": false},
			"ipam":     map[string]any{"dataDir": tb.hostLocal()["dataDir"]},
		})
	})
	for n := range chainedSize - len(own) {
		m.mustAdd(t, fmt.Sprint("f", n))
	}
	m.checkFullRange(t, own, exhausted)
}

// The primary CNI is Calico's plugin with calico-ipam, over the Kubernetes datastore, without its daemon.
func TestChainedCalico(t *testing.T) {
	calico := os.Getenv("AGENT_TEST_CALICO")
	if calico == "" {
		t.Skip("AGENT_TEST_CALICO is not set: expected a directory with Calico's CNI plugin (calico) and its CRDs (crd)")
	}
	tb := newChainedTestbed(t)
	tb.calico = true
	tb.CreateKinds(t, calico+"/crd")
	for kind, spec := range map[string]map[string]any{
		"IPPool": {
			"cidr": tb.subnets[0], "blockSize": int64(26), "ipipMode": "Never", "vxlanMode": "Never", "nodeSelector": "all()",
			"allowedUses": []any{"Workload", "Tunnel"},
		},
		"ClusterInformation": {"datastoreReady": true},
	} {
		object := cluster.Object("crd.projectcalico.org/v1", kind, "default")
		object.Object["spec"] = spec
		check.Must(t, tb.Create(t.Context(), object))
	}
	tb.pluginDir = tb.path("plugins")
	check.Must(t, os.MkdirAll(tb.pluginDir, 0o755))
	for _, name := range []string{"calico", "calico-ipam"} {
		cluster.RunLines(t, "install "+calico+"/calico "+tb.pluginDir+"/"+name)
	}
	// As its daemon does.
	check.Must(t, os.MkdirAll("/var/lib/calico", 0o755))
	check.Must(t, os.WriteFile("/var/lib/calico/nodename", []byte(nodeName), 0o600))
	tb.daemon = tb.newDaemon(t, "calico-daemon", "--cni-conf-dir="+tb.chain, "--cni-network="+networkName)
	m, own := tb.startChained(t, func(t *testing.T) {
		writeConflist(t, tb.chain+"/10-calico.conflist", map[string]any{
			"type": "calico", "datastore_type": "kubernetes", "nodename": nodeName, "mtu": 1450, "log_level": "info",
			"log_file_path": tb.path("calico.log"),
			"ipam":          map[string]any{"type": "calico-ipam"},
			"policy":        map[string]any{"type": "k8s"},
			"kubernetes":    map[string]any{"kubeconfig": tb.path("admin.kubeconfig")},
		})
	})
	for n := range 64 - len(own) {
		m.mustAdd(t, fmt.Sprint("f", n))
	}
	m.checkFullRange(t, own, "addresses")
}

func (tb *testbed) calicoLeases(ctx context.Context) (map[netip.Addr]bool, error) {
	blocks, err := tb.Resource("crd.projectcalico.org", "v1", "ipamblocks").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	leased := map[netip.Addr]bool{}
	for _, block := range blocks.Items {
		spec, _ := block.Object["spec"].(map[string]any)
		cidr, err := netip.ParsePrefix(fmt.Sprint(spec["cidr"]))
		if err != nil {
			return nil, err
		}
		allocations, _ := spec["allocations"].([]any)
		ip := cidr.Addr()
		for _, index := range allocations {
			if index != nil {
				leased[ip] = true
			}
			ip = ip.Next()
		}
	}
	return leased, nil
}

// Without the daemon the agent takes its addresses from the node's range on its own, as by default,
// and the primary CNI allocates them to pods.
func TestChainedStock(t *testing.T) {
	tb := newChainedTestbed(t)
	stock := tb.newChainedStock(t, tb.subnets[0])
	tb.installPrimary(t)
	tb.start(t, stock)
	node, err := tb.ciliumNode(t.Context(), nodeName)
	check.Must(t, err)
	for n := range chainedSize + 1 {
		err := tb.addPod(t.Context(), &pod{name: fmt.Sprintf("p%d", n)})
		if err != nil && !strings.Contains(err.Error(), exhausted) {
			t.Log(err) // the pod keeps its lease: this kubelet sends no DEL
		}
	}
	leased, err := cluster.HostLocal(tb.path("host-local"))
	check.Must(t, err)
	collisions := 0
	for owner, ips := range specAddresses(node) {
		for _, ip := range ips {
			if leased[ip] {
				collisions++
				tb.record(t, "the agent's "+owner+" has the address of a pod", ip)
			}
		}
	}
	if collisions == 0 {
		t.Errorf("the agent has %v, and host-local has none of them; this test no longer shows the collision", specAddresses(node))
	}
}

// A node with pods changes from the stock agent, which has another range for itself, to the daemon, and back.
func TestChainedMigration(t *testing.T) {
	tb := newChainedTestbed(t)
	stock := tb.newChainedStock(t, "10.42.1.0/26")
	tb.installPrimary(t)
	tb.start(t, stock)
	m := startMonitor(t, tb)
	start := func(name string) {
		m.mustAdd(t, name)
		m.waitPods(t, 5*time.Minute)
	}
	// replace starts an agent with a new CiliumNode: the old one has the range of the previous mode.
	replace := func(before, after *cluster.Program) {
		before.End(syscall.SIGTERM)
		check.Must(t, tb.CiliumNodes().Delete(t.Context(), nodeName, metav1.DeleteOptions{}))
		tb.start(t, after)
	}
	start("old-1")
	start("old-2")
	tb.daemon.MustStart(t)
	tb.bridge.MustStart(t)
	replace(stock, tb.agent)
	start("new")
	m.mustChained(t)

	replace(tb.agent, stock)
	start("newest")
	tb.bridge.End(syscall.SIGTERM)
	cluster.RunLines(t, tb.ownProgram("delegated-ipam")+" release --all --yes --host=unix://"+daemonSocket)
	leased, err := cluster.HostLocal(tb.path("host-local"))
	check.Must(t, err)
	if want := len(m.runningPods()); len(leased) != want {
		t.Errorf("after the release host-local has %v; want the addresses of %d pods", leased, want)
	}
}
