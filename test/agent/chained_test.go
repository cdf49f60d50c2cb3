package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	// chainedSize is how many addresses host-local has for the range of chainedNetwork: not those of
	// network, gateway and broadcast.
	chainedSize = 61
	// exhausted is host-local's error when it has none.
	exhausted = "no IP addresses available in range set"
)

// chainedNetwork has a range that agent and pods exhaust.
func chainedNetwork() network {
	nw := ipv4Only()
	nw.subnets = []string{"10.42.0.0/26"}
	return nw
}

// newChainedTestbed returns a testbed whose primary CNI is the real bridge plugin with host-local, and
// whose agent is chained behind it. The configuration of the primary CNI does not exist yet
// (installPrimary).
func newChainedTestbed(t *testing.T) *testbed {
	t.Helper()
	tb := newTestbed(t, chainedNetwork(), chaosDelays())
	tb.chain = tb.path("chain")
	must(t, os.MkdirAll(tb.chain, 0o755))
	tb.sidecar = tb.newProgram(t, "chained-sidecar", nil, tb.sidecarArgs("--cni-conf-dir="+tb.chain, "--cni-network="+networkName)...)
	// The options of deploy/chart/chained.yaml.
	tb.bridge = tb.newProgram(t, "chained-bridge", nil, tb.bridgeArgs("--min-allocate=3", "--max-allocate=3", "--pre-allocate=1", "--watch-pods=false")...)
	tb.agent = tb.newChainedAgent(t, "chained-agent", "--ipam=crd", "--ipam-cilium-node-update-rate=1s")
	return tb
}

// newChainedAgent defines an agent that appends cilium-cni to the primary CNI's chain, with the flags
// that Cilium's chart sets then: the primary CNI has the routes of the pods.
func (tb *testbed) newChainedAgent(t *testing.T, name string, flags ...string) *cluster.Program {
	t.Helper()
	return tb.newAgent(t, name, "cilium-agent", append([]string{
		"--cni-chaining-mode=generic-veth", "--cni-chaining-target=" + networkName,
		"--write-cni-conf-when-ready=" + tb.chain + "/05-cilium.conflist", "--cni-exclusive=true",
		"--enable-endpoint-routes=false", "--enable-local-node-route=false", "--enable-host-legacy-routing=true",
		"--enable-endpoint-health-checking=true",
		"--enable-envoy-config=true", // the address of ingress; it needs no Envoy
	}, flags...)...)
}

// newChainedStock defines the same agent without the sidecar, in ipam mode kubernetes: it takes its
// addresses from a range of the Node.
func (tb *testbed) newChainedStock(t *testing.T, podCIDR string) *cluster.Program {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"podCIDR":%q,"podCIDRs":[%q]}}`, podCIDR, podCIDR)
	_, err := tb.kube.nodes().Patch(t.Context(), nodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
	return tb.newChainedAgent(t, "chained-stock", "--ipam=kubernetes")
}

// installPrimary writes the configuration of the primary CNI, as its DaemonSet does at each start.
func (tb *testbed) installPrimary(t *testing.T) {
	t.Helper()
	plugin := map[string]any{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": tb.hostLocal()}
	must(t, writeConflist(tb.chain+"/10-primary.conflist", plugin))
}

// writeConflist writes a configuration of one plugin for networkName.
func writeConflist(file string, plugin map[string]any) error {
	conf, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": networkName, "plugins": []any{plugin}})
	if err != nil {
		return err
	}
	return os.WriteFile(file, conf, 0o600)
}

// callChain calls the plugins of the first configuration, as a container runtime does.
func (tb *testbed) callChain(ctx context.Context, verb string, p *pod, uid string) ([]byte, error) {
	files, err := libcni.ConfFiles(tb.chain, []string{".conflist"})
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no CNI configuration in %s (%w)", tb.chain, err)
	}
	list, err := libcni.NetworkConfFromFile(files[0])
	if err != nil {
		return nil, err
	}
	call := &libcni.RuntimeConf{
		ContainerID: p.sandbox, NetNS: "/run/netns/" + p.netns(), IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", podNamespace},
			{"K8S_POD_NAME", p.name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.sandbox},
			{"K8S_POD_UID", uid},
		},
	}
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: io.Discard}} // cilium-cni's log
	runtime := libcni.NewCNIConfigWithCacheDir([]string{tb.binDir(), tb.pluginDir}, tb.path("cni-cache"), exec)
	if verb == "DEL" {
		return nil, runtime.DelNetworkList(ctx, list, call)
	}
	result, err := runtime.AddNetworkList(ctx, list, call)
	if err != nil {
		return nil, fmt.Errorf("%s of the chain for %s: %w", verb, p.netns(), err)
	}
	var out bytes.Buffer
	err = result.PrintTo(&out)
	return out.Bytes(), err
}

// Pods and the agent take addresses of one range until it is exhausted, while agent, bridge, sidecar
// and API server are killed. No address belongs to two of them, and the agent keeps its own.
func TestChained(t *testing.T) {
	tb := newChainedTestbed(t)
	length, seed := chaosLength(t), chaosSeed(t)
	tb.record(t, "length, seed", fmt.Sprintf("%s, %d", length, seed))
	// The primary CNI is installed last.
	tb.sidecar.MustStart(t)
	tb.bridge.MustStart(t)
	first := tb.agent.MustStart(t)
	tb.installPrimary(t)
	tb.waitChained(t, first)
	tracker := newPodTracker()
	own := tb.mustChained(t, tracker)

	m := &monitor{testbed: tb, tracker: tracker, grace: time.Minute}
	c := &churn{testbed: tb, tracker: tracker, failed: map[string]int{}}
	var left []*pod
	start := func(count int) {
		for range count {
			p := &pod{name: fmt.Sprintf("s%d", len(left))}
			if !c.add(t.Context(), p) {
				t.Fatalf("pod %s does not start", p.name)
			}
			left = append(left, p)
		}
	}
	// With those of the churn the range is exhausted again and again.
	const churned = churnWorkers * podsEach
	start(chainedSize - len(own) - churned)
	targets := []*chaosTarget{
		{program: tb.bridge, meanUptime: 15 * time.Second, maxDowntime: 3 * time.Second},
		{program: tb.sidecar, meanUptime: 15 * time.Second, maxDowntime: 3 * time.Second},
		{program: tb.agent, meanUptime: 20 * time.Second, maxDowntime: 3 * time.Second, onStart: func(ctx context.Context, now *cluster.Process) {
			m.followers.Go(func() { m.followAgent(ctx, now) })
		}},
		{program: tb.apiServer, meanUptime: 40 * time.Second, maxDowntime: 5 * time.Second},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { tb.watchOverlap(ctx, tracker) })
	churnedLeft := tb.runChaos(t, length, seed, targets, m, c)
	cancel()
	watch.Wait()

	tb.restartAgent(t)
	start(churned - len(churnedLeft))
	surplus := &pod{name: "surplus"}
	if err := tb.addPod(t.Context(), surplus); err == nil || !strings.Contains(err.Error(), exhausted) {
		t.Errorf("a pod more than the range has addresses: %v; want the error of host-local", err)
	}
	must(t, tb.dropPod(t.Context(), surplus))
	// Every program, and the primary CNI, start once more in the full range.
	tb.installPrimary(t)
	for _, p := range []*cluster.Program{tb.bridge, tb.sidecar, tb.agent} {
		p.End(syscall.SIGKILL)
	}
	tb.sidecar.MustStart(t)
	tb.bridge.MustStart(t)
	tb.restartAgent(t)
	if err := cluster.Eventually(t.Context(), 5*time.Minute, func() error { return m.checkPods(t.Context(), tracker.runningPods()) }); err != nil {
		t.Errorf("at the end: %v", err)
	}
	if now := tb.mustChained(t, tracker); !slices.Equal(now, own) {
		t.Errorf("at the end the agent has %v; want %v as at the begin", now, own)
	}
	tb.recordResults(t, targets, m, c, append(left, churnedLeft...))
	tb.record(t, "in the full range: pods, addresses of the agent, of the range", fmt.Sprintf("%d + %d = %d", len(tracker.runningPods()), len(own), chainedSize))
	for _, v := range tracker.violationList() {
		t.Error(v)
	}
}

// waitChained waits until the agent is healthy and has appended cilium-cni to the chain.
func (tb *testbed) waitChained(t *testing.T, now *cluster.Process) {
	t.Helper()
	tb.waitHealthy(t, now)
	cluster.MustEventually(t, "the agent to append cilium-cni to the chain", time.Minute, func() error {
		_, err := os.Stat(tb.chain + "/05-cilium.conflist")
		return err
	})
}

// restartAgent waits until the agent is healthy; it ends if the API server is down at its start.
func (tb *testbed) restartAgent(t *testing.T) {
	t.Helper()
	cluster.MustEventually(t, "the agent to be healthy again", 5*time.Minute, func() error {
		if !tb.agent.Current().Running() {
			tb.agent.MustStart(t)
		}
		return agentAPI().Healthy(t.Context())
	})
}

// mustChained waits until all records agree, and returns the addresses of the agent: they are the
// pool, and host-local's store has these, those of the running pods, and no other.
func (tb *testbed) mustChained(t *testing.T, tracker *podTracker) []netip.Addr {
	t.Helper()
	var own []netip.Addr
	cluster.MustEventually(t, "agent, pods and host-local to agree", 5*time.Minute, func() error {
		b, err := tb.nodeState(t.Context())
		if err != nil {
			return err
		}
		own = nil
		for _, owner := range agentOwners() {
			own = append(own, b.UsedBy(owner)...)
		}
		slices.SortFunc(own, netip.Addr.Compare)
		all := slices.Clone(own)
		for _, r := range tracker.runningPods() {
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

// watchOverlap reports addresses of the pool that a running pod has.
func (tb *testbed) watchOverlap(ctx context.Context, tracker *podTracker) {
	for ; ctx.Err() == nil; sleep(ctx, 200*time.Millisecond) {
		before := tracker.runningPods()
		b, err := tb.nodeState(ctx)
		if err != nil {
			continue // the API server is down
		}
		for _, r := range tracker.stillRunning(before) {
			for _, ip := range r.ips {
				if _, published := b.Pool[ip]; published {
					tracker.addViolation("%s of pod %s is in the agent's pool", ip, r.name)
				}
			}
		}
	}
}

// The primary CNI is flannel's plugin, whose file has no ranges: it adds those of its daemon's file for
// each pod. The sidecar has a file with the same name and ranges, as docs/install/chained.md renders it.
func TestChainedFlannel(t *testing.T) {
	flannel := os.Getenv("AGENT_TEST_FLANNEL")
	if flannel == "" {
		t.Skip("AGENT_TEST_FLANNEL is not set: expected the path of flannel's CNI plugin")
	}
	tb := newChainedTestbed(t)
	tb.pluginDir = tb.path("plugins")
	must(t, os.CopyFS(tb.pluginDir, os.DirFS(tb.plugins())))
	must(t, command("install "+flannel+" "+tb.pluginDir+"/flannel"))
	subnets := "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.0.1/26\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
	must(t, os.WriteFile(tb.path("subnet.env"), []byte(subnets), 0o600))
	must(t, writeConflist(tb.path("rendered.conflist"), map[string]any{"type": "bridge", "ipam": tb.hostLocal()}))
	tb.sidecar = tb.newProgram(t, "flannel-sidecar", nil, tb.sidecarArgs("--cni-conf-file="+tb.path("rendered.conflist"))...)
	tb.sidecar.MustStart(t)
	tb.bridge.MustStart(t)
	first := tb.agent.MustStart(t)
	must(t, writeConflist(tb.chain+"/10-flannel.conflist", map[string]any{
		"type": "flannel", "subnetFile": tb.path("subnet.env"), "dataDir": tb.path("flannel"),
		"delegate": map[string]any{"isDefaultGateway": true, "ipMasq": false},
		"ipam":     map[string]any{"dataDir": tb.hostLocal()["dataDir"]},
	}))
	tb.checkSharedRange(t, first, chainedSize, exhausted)
}

// The primary CNI is Calico's plugin with calico-ipam, over the Kubernetes datastore, without its daemon.
func TestChainedCalico(t *testing.T) {
	calico := os.Getenv("AGENT_TEST_CALICO")
	if calico == "" {
		t.Skip("AGENT_TEST_CALICO is not set: expected a directory with Calico's CNI plugin (calico) and its CRDs (crd)")
	}
	tb := newChainedTestbed(t)
	tb.calico = true
	tb.kube.CreateKinds(t, calico+"/crd")
	for kind, spec := range map[string]map[string]any{
		"IPPool": {
			"cidr": tb.subnets[0], "blockSize": int64(26), "ipipMode": "Never", "vxlanMode": "Never", "nodeSelector": "all()",
			"allowedUses": []any{"Workload", "Tunnel"},
		},
		"ClusterInformation": {"datastoreReady": true},
	} {
		object := cluster.Object("crd.projectcalico.org/v1", kind, "default")
		object.Object["spec"] = spec
		must(t, tb.kube.Create(t.Context(), object))
	}
	tb.pluginDir = tb.path("plugins")
	must(t, command("mkdir "+tb.pluginDir))
	for _, name := range []string{"calico", "calico-ipam"} {
		must(t, command("install "+calico+"/calico "+tb.pluginDir+"/"+name))
	}
	// As its daemon does.
	must(t, os.MkdirAll("/var/lib/calico", 0o755))
	must(t, os.WriteFile("/var/lib/calico/nodename", []byte(nodeName), 0o600))
	// A later value of a flag replaces an earlier one.
	tb.sidecar = tb.newProgram(t, "calico-sidecar", nil, tb.sidecarArgs("--cni-conf-dir="+tb.chain, "--cni-network="+networkName, "--cni-bin-dir="+tb.pluginDir)...)
	tb.sidecar.MustStart(t)
	tb.bridge.MustStart(t)
	first := tb.agent.MustStart(t)
	must(t, writeConflist(tb.chain+"/10-calico.conflist", map[string]any{
		"type": "calico", "datastore_type": "kubernetes", "nodename": nodeName, "mtu": 1450, "log_level": "info",
		"log_file_path": tb.path("calico.log"),
		"ipam":          map[string]any{"type": "calico-ipam"},
		"policy":        map[string]any{"type": "k8s"},
		"kubernetes":    map[string]any{"kubeconfig": tb.kubeconfig("admin")},
	}))
	tb.checkSharedRange(t, first, 64, "addresses")
}

// calicoLeases returns the addresses that are allocated in calico-ipam's blocks.
func (tb *testbed) calicoLeases(ctx context.Context) (map[netip.Addr]bool, error) {
	blocks, err := tb.kube.Resource("crd.projectcalico.org", "v1", "ipamblocks").List(ctx, metav1.ListOptions{})
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

// checkSharedRange starts pods until a range of that size is exhausted, kills every program, and wants
// the addresses of the agent to be the same, the pods to be reachable, and no address to belong to two.
func (tb *testbed) checkSharedRange(t *testing.T, first *cluster.Process, size int, exhausted string) {
	t.Helper()
	tb.waitChained(t, first)
	tracker := newPodTracker()
	own := tb.mustChained(t, tracker)
	for n := range size - len(own) {
		p := &pod{name: fmt.Sprintf("f%d", n)}
		must(t, tb.addPod(t.Context(), p))
		tracker.added(p)
	}
	for _, p := range []*cluster.Program{tb.bridge, tb.sidecar, tb.agent} {
		p.End(syscall.SIGKILL)
		p.MustStart(t)
	}
	tb.restartAgent(t)
	surplus := &pod{name: "surplus"}
	if err := tb.addPod(t.Context(), surplus); err == nil || !strings.Contains(err.Error(), exhausted) {
		t.Errorf("a pod more than the range has addresses: %v; want the error of the plugin", err)
	}
	must(t, tb.dropPod(t.Context(), surplus))
	if now := tb.mustChained(t, tracker); !slices.Equal(now, own) {
		t.Errorf("after the kills the agent has %v; want %v", now, own)
	}
	m := &monitor{testbed: tb, tracker: tracker, grace: time.Minute}
	cluster.MustEventually(t, "all pods to be reachable", 5*time.Minute, func() error { return m.checkPods(t.Context(), tracker.runningPods()) })
	for _, v := range tracker.violationList() {
		t.Error(v)
	}
}

// Without the sidecar the agent takes its addresses from the node's range on its own, as by default,
// and the primary CNI allocates them to pods.
func TestChainedStock(t *testing.T) {
	tb := newChainedTestbed(t)
	stock := tb.newChainedStock(t, tb.subnets[0])
	tb.installPrimary(t)
	tb.waitHealthy(t, stock.MustStart(t))
	node, err := tb.kube.ciliumNode(t.Context(), nodeName)
	must(t, err)
	var started, refused int
	for n := range chainedSize + 1 {
		err := tb.addPod(t.Context(), &pod{name: fmt.Sprintf("p%d", n)})
		switch {
		case err == nil:
			started++
		case !strings.Contains(err.Error(), exhausted):
			refused++ // it keeps its lease: this kubelet sends no DEL
			t.Log(err)
		}
	}
	leased, err := tb.hostLocalLeases()
	must(t, err)
	collisions := 0
	for owner, ips := range specAddresses(node) {
		for _, ip := range ips {
			if leased[ip] {
				collisions++
				tb.record(t, "the agent's "+owner+" has the address of a pod", ip)
			}
		}
	}
	tb.record(t, "pods that run, pods that the agent refused", fmt.Sprintf("%d, %d", started, refused))
	if collisions == 0 {
		t.Errorf("the agent has %v, and host-local has none of them; this test no longer shows the collision", specAddresses(node))
	}
}

// A node with pods changes from the stock agent, which has another range for itself, to the sidecar.
func TestChainedMigration(t *testing.T) {
	tb := newChainedTestbed(t)
	stock := tb.newChainedStock(t, "10.42.1.0/26")
	tb.installPrimary(t)
	tb.waitHealthy(t, stock.MustStart(t))
	tracker := newPodTracker()
	m := &monitor{testbed: tb, tracker: tracker, grace: time.Minute}
	start := func(name string) {
		p := &pod{name: name}
		must(t, tb.addPod(t.Context(), p))
		tracker.added(p)
		cluster.MustEventually(t, "all pods to be reachable", 5*time.Minute, func() error { return m.checkPods(t.Context(), tracker.runningPods()) })
	}
	start("old-1")
	start("old-2")
	tb.sidecar.MustStart(t)
	tb.bridge.MustStart(t)
	stock.End(syscall.SIGTERM)
	// It has the range of the previous mode.
	must(t, tb.kube.ciliumNodes().Delete(t.Context(), nodeName, metav1.DeleteOptions{}))
	tb.waitHealthy(t, tb.agent.MustStart(t))
	start("new")
	tb.mustChained(t, tracker)

	// And back.
	tb.agent.End(syscall.SIGTERM)
	must(t, tb.kube.ciliumNodes().Delete(t.Context(), nodeName, metav1.DeleteOptions{}))
	tb.waitHealthy(t, stock.MustStart(t))
	start("newest")
	tb.bridge.End(syscall.SIGTERM)
	must(t, command(tb.ownProgram("delegated-ipam")+" release --all --yes --host=unix://"+sidecarSocket))
	leased, err := tb.hostLocalLeases()
	must(t, err)
	if want := len(tracker.runningPods()); len(leased) != want {
		t.Errorf("after the release host-local has %v; want the addresses of %d pods", leased, want)
	}
}
