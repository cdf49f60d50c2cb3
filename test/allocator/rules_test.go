package allocator

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/cilium/pkg/ipam"
	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/crdagent"
)

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
