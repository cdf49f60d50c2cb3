// Package allocator lets the planner of the bridge and the allocator of Cilium's ipam mode crd (pkg/ipam)
// work on one CiliumNode, in random order ("make allocator-test"). The tests of the planner have an agent
// that imitates it, so that they are fast and repeatable; TestRules compares its rules with the real one.
package allocator

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/cilium/pkg/ipam"
	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/crdagent"
)

// seed repeats a run. The allocator takes the addresses of a pool in the order of a Go map, so a run
// with the same seed has the same steps only until the first allocation.
var seed = flag.Uint64("seed", 0, "seed of the runs; 0 for a random one")

// TestAllocator lets bridge, allocator and daemon act in random order, with pods that come and go, and
// crashes of bridge and agent at any moment. At every moment the address of a pod is held and in the
// pool, and every address in the pool is held. A restarted agent keeps every pod. Without further events
// all agree, as many slots are held as the settings demand, and no release is left.
func TestAllocator(t *testing.T) {
	const runs, steps = 200, 200
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	for run := range runs {
		t.Run(fmt.Sprint("seed ", from+uint64(run)), func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(from+uint64(run), 0)))
			for range steps {
				w.step()
				w.check()
			}
			w.converge()
		})
	}
}

// TestRules compares the rules of the imitations with Cilium's code: each state of a release, of an address
// that is or is not in the pool, and is or is not allocated.
func TestRules(t *testing.T) {
	states := []ipamtypes.IPReleaseStatus{
		"", ipamoption.IPAMMarkForRelease, ipamoption.IPAMReadyForRelease, ipamoption.IPAMDoNotRelease, ipamoption.IPAMReleased,
	}
	for _, state := range states {
		for _, published := range []bool{true, false} {
			for _, allocated := range []bool{true, false} {
				t.Run(fmt.Sprintf("%q, published %v, allocated %v", state, published, allocated), func(t *testing.T) {
					compareRules(t, state, published, allocated)
				})
			}
		}
	}
}

func compareRules(t *testing.T, state ipamtypes.IPReleaseStatus, published, allocated bool) {
	ip := netip.MustParseAddr("10.0.0.9")
	node := &ciliumv2.CiliumNode{}
	node.Name, node.ResourceVersion = "node", "1"
	node.Spec.IPAM.Pool = ipamtypes.AllocationMap{ip.String(): {}}
	for n := range ownAddresses() {
		node.Spec.IPAM.Pool[fmt.Sprint("10.0.0.", n+1)] = ipamtypes.AllocationIP{}
	}
	a := startAgent(node, false)
	defer a.stop()
	allocate := func() error {
		_, err := a.AllocateIPWithoutSyncUpstream(ip, "default/pod", ipam.PoolDefault())
		return err
	}
	if allocated {
		if err := allocate(); err != nil {
			t.Fatal(err)
		}
	}
	node.ResourceVersion = "2"
	if !published {
		delete(node.Spec.IPAM.Pool, ip.String())
	}
	if state != "" {
		node.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{ip.String(): state}
	}
	a.deliver(node)
	got := state
	if a.pending != nil {
		got = a.pending.node.Status.IPAM.ReleaseIPs[ip.String()]
	}
	want := crdagent.Answer(state, published, allocated)
	if got != want {
		t.Errorf("the agent answers %q; the imitations answer %q", got, want)
	}
	if published && !allocated {
		if err := allocate(); (err == nil) != crdagent.Allocatable(want) {
			t.Errorf("in state %q the agent allocates the address: %v; the imitations: %v", want, err, crdagent.Allocatable(want))
		}
	}
}
