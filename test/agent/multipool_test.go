package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// podPools is spec.ipam.pools of a CiliumNode.
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

// waitPools waits until a condition holds for the pools of the node.
func (tb *testbed) waitPools(t *testing.T, what string, holds func(podPools) bool) {
	t.Helper()
	begin := time.Now()
	cluster.MustEventually(t, what, 5*time.Minute, func() error {
		node, err := tb.kube.ciliumNode(t.Context(), nodeName)
		if err != nil {
			return err
		}
		text, err := node.MarshalJSON()
		must(t, err)
		var found struct {
			Spec struct{ IPAM struct{ Pools podPools } }
		}
		must(t, json.Unmarshal(text, &found))
		if !holds(found.Spec.IPAM.Pools) {
			return fmt.Errorf("the pools are %+v", found.Spec.IPAM.Pools)
		}
		return nil
	})
	tb.record(t, what, time.Since(begin))
}

// allocatePool writes the addresses of a pool, as Cilium's operator does.
func (tb *testbed) allocatePool(t *testing.T, cidrs ...string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"ipam": map[string]any{"pools": map[string]any{
		"allocated": []podPool{{Pool: "default", CIDRs: cidrs}},
	}}}})
	must(t, err)
	_, err = tb.kube.ciliumNodes().Patch(t.Context(), nodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
}

// The interface that the bridge would use if Cilium removed ipam mode crd: the agent takes single
// addresses as CIDRs of a pool, and needs a CiliumPodIPPool object of its name.
func TestMultiPool(t *testing.T) {
	tb := newTestbed(t, ipv4Only(), shortDelays())
	agent := tb.newAgent(t, "multi-pool-agent", "cilium-agent", "--ipam=multi-pool", "--ipam-multi-pool-pre-allocation=default=1",
		"--ipam-cilium-node-update-rate=1s", "--enable-endpoint-health-checking=true", "--enable-envoy-config=true")
	own := []string{"10.42.0.2/32", "10.42.0.3/32", "10.42.0.4/32"}
	first := agent.MustStart(t)
	tb.waitPools(t, "the agent to request addresses", func(p podPools) bool { return len(p.Requested) > 0 })
	tb.allocatePool(t, own...)
	<-first.Done()

	pool := cluster.Object("cilium.io/v2alpha1", "CiliumPodIPPool", "default")
	pool.Object["spec"] = map[string]any{"ipv4": map[string]any{"cidrs": []any{tb.subnets[0]}, "maskSize": int64(32)}}
	_, err := tb.kube.Resource("cilium.io", "v2alpha1", "ciliumpodippools").Create(t.Context(), pool, metav1.CreateOptions{})
	must(t, err)
	begin := time.Now()
	tb.waitHealthy(t, agent.MustStart(t))
	tb.record(t, "from a start with a CiliumPodIPPool until the agent is healthy", time.Since(begin))
	wantOwn := func(when string) {
		node, err := tb.kube.ciliumNode(t.Context(), nodeName)
		must(t, err)
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
	cluster.MustEventually(t, "the agent to refuse a pod because its pool is exhausted", time.Minute, func() error {
		err := tb.addPod(t.Context(), p)
		must(t, tb.dropPod(t.Context(), p))
		if err != nil && strings.Contains(err.Error(), "exhausted") {
			return nil
		}
		return fmt.Errorf("ADD: %w", err) // it looks up the Pod
	})
	tb.waitPools(t, "the agent to request an address for the pod", func(p podPools) bool { return p.Requested[0].Needed["ipv4-addrs"] > len(own)+1 })
	tb.allocatePool(t, append(own, "10.42.0.5/32", "10.42.0.6/32", "10.42.0.7/32", "10.42.0.8/32")...)
	cluster.MustEventually(t, "a pod to start", time.Minute, func() error {
		err := tb.addPod(t.Context(), p)
		if err != nil {
			must(t, tb.dropPod(t.Context(), p))
		}
		return err
	})
	cluster.MustEventually(t, "node to the pod", time.Minute, func() error { return checkReachable(t.Context(), p.name, p.ips) })
	must(t, tb.dropPod(t.Context(), p))
	tb.waitPools(t, "the agent to remove unused addresses from the pool", func(p podPools) bool { return len(p.Allocated[0].CIDRs) <= len(own)+1 })
	agent.End(syscall.SIGKILL)
	tb.waitHealthy(t, agent.MustStart(t))
	wantOwn("after a kill")
}
