package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	manyPods    = 40
	deletedPods = 30
)

func TestAgentLifecycle(t *testing.T) { testLifecycle(t, ipv4Only()) }

func TestAgentLifecycleIPv6(t *testing.T) { testLifecycle(t, ipv6Only()) }

func TestAgentLifecycleDualStack(t *testing.T) { testLifecycle(t, dualStack()) }

func testLifecycle(t *testing.T, nw network) {
	tb := newTestbed(t, nw, shortDelays())
	begin := time.Now()
	tb.start(t, tb.daemon, tb.bridge, tb.agent)
	tb.record(t, "from the first start to a healthy agent", time.Since(begin))
	tb.waitConsistent(t, 0, time.Minute)
	b, err := tb.nodeState(t.Context())
	check.Must(t, err)
	for _, owner := range agentOwners() {
		if ips := b.UsedBy(owner); len(ips) != tb.families() {
			t.Errorf("the agent's %s has %v; want %d", owner, ips, tb.families())
		}
	}
	tb.checkStatus(t, b)

	m := startMonitor(t, tb)
	var started []*pod
	for n := range manyPods {
		p := &pod{name: fmt.Sprintf("p%d", n)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if !m.add(ctx, p) { // the pool may be temporarily exhausted
			t.Fatalf("pod %s does not start", p.name)
		}
		cancel()
		started = append(started, p)
	}
	tb.record(t, fmt.Sprintf("start of one of %d pods", manyPods), cluster.MedianAndMax(m.took))
	m.waitPods(t, time.Minute)
	checkConnectivity(t, b.UsedBy("health"), started)
	tb.waitConsistent(t, manyPods, 2*time.Minute)

	// The addresses of deleted pods are released down to the watermark while the others stay reachable.
	before, err := tb.nodeState(t.Context())
	check.Must(t, err)
	begin = time.Now()
	for _, p := range started[:deletedPods] {
		m.drop(p)
	}
	tb.waitConsistent(t, manyPods-deletedPods, 30*time.Minute)
	tb.record(t, fmt.Sprintf("%d pods deleted, with --excess-ip-release-delay=%s", deletedPods, shortDelays().release), time.Since(begin))
	after, err := tb.nodeState(t.Context())
	check.Must(t, err)
	if tb.families() == 1 && len(before.Store)-len(after.Store) != deletedPods {
		t.Errorf("host-local had %d leases and now %d; want %d fewer", len(before.Store), len(after.Store), deletedPods)
	}
	tb.agent.End(syscall.SIGKILL)
	tb.start(t, tb.agent)
	tb.waitConsistent(t, manyPods-deletedPods, 2*time.Minute)
	m.waitPods(t, time.Minute)
	checkEndsOnSIGTERM(t, tb.bridge, tb.daemon)
}

// checkStatus wants "cilium-dbg status" to show the addresses of the agent and their owners.
func (tb *testbed) checkStatus(t *testing.T, b ciliumagent.NodeState) {
	t.Helper()
	out, err := exec.Command(filepath.Join(tb.binDir(), "cilium-dbg"), "status", "--verbose").CombinedOutput()
	if err != nil {
		t.Fatalf("cilium-dbg status: %v: %s", err, out)
	}
	for _, owner := range agentOwners() {
		for _, ip := range b.UsedBy(owner) {
			if want := fmt.Sprintf("%s (%s)", ip, owner); !strings.Contains(string(out), want) {
				t.Errorf("cilium-dbg status does not show %q:\n%s", want, out)
			}
		}
	}
}

func checkEndsOnSIGTERM(t *testing.T, programs ...*cluster.Program) {
	t.Helper()
	for _, p := range programs {
		p.End(syscall.SIGTERM)
		if state := p.Current().State(); state.ExitCode() != 0 {
			t.Errorf("after SIGTERM %s ended with %s; want status 0", p.Name(), state)
		}
	}
}

// A node changes from IPAM mode delegated-plugin to crd while a pod runs. The agent marks the
// endpoint of that pod as external-ipam, so its address need not be in the pool. The CNI
// configuration still names the plugin, so that the pod's DEL frees its address.
func TestMigrationToCRDMode(t *testing.T) {
	tb := newTestbed(t, ipv4Only(), shortDelays())
	tb.delegatePods(t, tb.hostLocal())
	before := tb.newStockAgent(t)
	tb.start(t, before)
	old, careless := tb.addPods(t, "old", 1)[0], tb.addPods(t, "careless", 1)[0]
	checkPodsReachable(t, old)

	tb.daemon.MustStart(t)
	tb.bridge.MustStart(t)
	cluster.MustEventually(t, "the pool to be filled before the agent uses it", time.Minute, func() error {
		b, err := tb.nodeState(t.Context())
		// The two pods count, because the bridge does not know that their addresses are external.
		if want := len(agentOwners()) + 2 + ciliumagent.PreAllocate; err == nil && (len(b.Pool) != want || len(b.Used) != 0) {
			err = fmt.Errorf("%d addresses are in the pool and %d are used; want %d and 0", len(b.Pool), len(b.Used), want)
		}
		return err
	})
	before.End(syscall.SIGTERM)
	for range 2 { // the move, and another restart
		tb.start(t, tb.agent)
		checkPodsReachable(t, old)
		tb.agent.End(syscall.SIGKILL)
	}
	tb.start(t, tb.agent)
	fresh := tb.addPods(t, "fresh", 1)[0]
	cluster.MustEventually(t, "from the old pod to the new one", time.Minute, func() error { return fresh.checkReachableFrom(t.Context(), old) })

	ip, left := old.ips[0], careless.ips[0]
	b, err := tb.nodeState(t.Context())
	check.Must(t, err)
	if _, published := b.Pool[ip]; published || slices.Contains(fresh.ips, ip) || !b.Store[ip] {
		t.Errorf("%s of the old pod: in the pool %v, leased by host-local %v, addresses of the new pod %v; want only the lease", ip, published, b.Store[ip], fresh.ips)
	}
	check.Must(t, tb.dropPod(t.Context(), old))
	// As the documents warn: without the plugin's name in the configuration DEL does not call it.
	tb.netConf = agentsNetConf
	check.Must(t, tb.dropPod(t.Context(), careless))
	b, err = tb.nodeState(t.Context())
	check.Must(t, err)
	if b.Store[ip] {
		t.Errorf("%s of the old pod has a lease of host-local after its DEL", ip)
	}
	if !b.Store[left] {
		t.Errorf("%s was freed by a DEL whose configuration lacks the plugin; docs/install/bridge.md says that it leaks", left)
	}
}

type podPools struct {
	Requested []struct {
		Needed map[string]int `json:"needed"`
	} `json:"requested"`
	Allocated []podPool `json:"allocated"`
}

type podPool struct {
	Pool  string   `json:"pool"`
	CIDRs []string `json:"cidrs"`
}

func (tb *testbed) waitPools(t *testing.T, what string, holds func(podPools) bool) {
	t.Helper()
	cluster.MustEventually(t, what, 5*time.Minute, func() error {
		node, err := tb.ciliumNode(t.Context(), nodeName)
		if err != nil {
			return err
		}
		text, err := node.MarshalJSON()
		check.Must(t, err)
		var found struct {
			Spec struct{ IPAM struct{ Pools podPools } }
		}
		check.Must(t, json.Unmarshal(text, &found))
		if !holds(found.Spec.IPAM.Pools) {
			return fmt.Errorf("the pools are %+v", found.Spec.IPAM.Pools)
		}
		return nil
	})
}

func (tb *testbed) allocatePool(t *testing.T, cidrs ...string) {
	t.Helper()
	pools := map[string]any{"allocated": []podPool{{Pool: "default", CIDRs: cidrs}}}
	patch := map[string]any{"spec": map[string]any{"ipam": map[string]any{"pools": pools}}}
	check.Must(t, cluster.Patch(t.Context(), tb.CiliumNodes(), nodeName, patch))
}

// The interface that the bridge would use if Cilium removed ipam mode crd: the agent takes single
// addresses as CIDRs of a pool, and needs a CiliumPodIPPool object of its name.
func TestMultiPool(t *testing.T) {
	tb := newTestbed(t, ipv4Only(), shortDelays())
	agent := tb.newAgent(t, "multi-pool-agent", "cilium-agent", append(healthAndIngress(),
		"--ipam=multi-pool", "--ipam-multi-pool-pre-allocation=default=1", "--ipam-cilium-node-update-rate=1s")...)
	own := []string{"10.42.0.2/32", "10.42.0.3/32", "10.42.0.4/32"}
	first := agent.MustStart(t)
	tb.waitPools(t, "the agent to request addresses", func(p podPools) bool { return len(p.Requested) > 0 })
	tb.allocatePool(t, own...)
	<-first.Done()

	pool := cluster.Object("cilium.io/v2alpha1", "CiliumPodIPPool", "default")
	pool.Object["spec"] = map[string]any{"ipv4": map[string]any{"cidrs": []any{tb.subnets[0]}, "maskSize": int64(32)}}
	_, err := tb.Resource("cilium.io", "v2alpha1", "ciliumpodippools").Create(t.Context(), pool, metav1.CreateOptions{})
	check.Must(t, err)
	tb.start(t, agent)
	wantOwn := func(when string) {
		node, err := tb.ciliumNode(t.Context(), nodeName)
		check.Must(t, err)
		var got []string
		for _, ips := range specAddresses(node) {
			for _, ip := range ips {
				got = append(got, ip.String()+"/32")
			}
		}
		if slices.Sort(got); !slices.Equal(got, own) {
			t.Errorf("%s: the agent has %v; want %v", when, got, own)
		}
	}
	wantOwn("at first")

	p := &pod{name: "one"}
	tryPod := func() error {
		err := tb.addPod(t.Context(), p)
		if err != nil {
			check.Must(t, tb.dropPod(t.Context(), p))
		}
		return err
	}
	cluster.MustEventually(t, "the agent to refuse a pod because its pool is exhausted", time.Minute, func() error {
		err := tryPod()
		if err != nil && strings.Contains(err.Error(), "exhausted") {
			return nil
		}
		check.Must(t, tb.dropPod(t.Context(), p))
		return fmt.Errorf("ADD: %w", err) // it looks up the Pod
	})
	tb.waitPools(t, "the agent to request an address for the pod", func(p podPools) bool { return p.Requested[0].Needed["ipv4-addrs"] > len(own)+1 })
	tb.allocatePool(t, append(own, "10.42.0.5/32", "10.42.0.6/32", "10.42.0.7/32", "10.42.0.8/32")...)
	cluster.MustEventually(t, "a pod to start", time.Minute, tryPod)
	checkPodsReachable(t, p)
	check.Must(t, tb.dropPod(t.Context(), p))
	tb.waitPools(t, "the agent to remove unused addresses from the pool", func(p podPools) bool { return len(p.Allocated[0].CIDRs) <= len(own)+1 })
	agent.End(syscall.SIGKILL)
	tb.start(t, agent)
	wantOwn("after a kill")
}
