package bridge

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

func TestNodeMissing(t *testing.T) {
	f := newFixture()
	f.node = nil
	runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
		advance(time.Hour)
		f.wantEvents(t, "CiliumNodeMissing")
		between(t, "slots were acquired without a CiliumNode", f.count(&f.acquires), 0, 0)
		f.update(func() { f.create("uid-1") })
		advance(coalesce)
		f.wantSomePublished(t)
		waitForPool(t, f)
		f.update(func() { f.node = nil })
		advance(time.Hour)
		between(t, "slots are held after its deletion", len(f.held), 4, 4)
		wantMetric(t, m.pool, 0)
		wantMetric(t, m.free, 0)
		f.update(func() { f.create("uid-2") })
		advance(time.Second)
		f.wantSmallPool(t)
	})
}

// The bridge's own write is newer than a cache that has not received it.
func TestStaleCache(t *testing.T) {
	f := newFixture()
	f.inCache = clone(f.node) // an empty pool, permanently
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		waitForPool(t, f)
		before := f.count(&f.patches)
		advance(time.Hour)
		between(t, "writes follow from a stale cache", f.count(&f.patches)-before, 0, 0)
	})
}

// A node that is up to date costs the API server no requests.
func TestUpToDate(t *testing.T) {
	f := newFixture()
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		waitForPool(t, f)
		advance(time.Hour)
		between(t, "reads although the watch works", f.count(&f.gets), 0, 0)
		f.update(func() { f.watchDown = true })
		advance(time.Hour)
		between(t, "reads in an hour without a watch", f.count(&f.gets), 100, 120)
	})
}

func TestForeignEntries(t *testing.T) {
	f := newFixture()
	f.node.Spec.IPAM.Pool["192.0.2.1"] = planner.Entry{Resource: "eni-1"}
	f.node.Spec.IPAM.Pool["not an address"] = planner.Entry{}
	f.node.Spec.IPAM.Pool["FD00::1"] = planner.Entry{}
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		advance(time.Hour)
		for _, key := range []string{"192.0.2.1", "not an address", "FD00::1"} {
			f.wantInPool(t, key, true)
		}
		// Both are due at the same time.
		f.wantEvents(t, "ForeignPoolEntry", "MalformedPoolEntry")
	})
}

func TestWrongMode(t *testing.T) {
	for name, tt := range map[string]struct {
		set   func(n *ciliumnode.Node)
		named string
	}{
		"cluster-pool": {func(n *ciliumnode.Node) { n.Spec.IPAM.PodCIDRs = []string{"10.1.0.0/24"} }, "podCIDRs"},
		"multi-pool":   {func(n *ciliumnode.Node) { n.Spec.IPAM.Pools.Requested = []any{"x"} }, "multi-pool"},
		"eni":          {func(n *ciliumnode.Node) { n.Spec.ENI = map[string]any{"vpc-id": "v"} }, "eni"},
		"azure":        {func(n *ciliumnode.Node) { n.Spec.Azure = map[string]any{"interface-name": "eth0"} }, "azure"},
		"alibabacloud": {func(n *ciliumnode.Node) { n.Spec.AlibabaCloud = map[string]any{"vpc-id": "v"} }, "alibaba"},
		"operator":     {func(n *ciliumnode.Node) { n.Status.IPAM.OperatorStatus.Error = "no CIDR left" }, "operator-status"},
		"any cloud":    {func(n *ciliumnode.Node) { n.Spec.InstanceID = "i-1" }, "instance-id"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			tt.set(f.node)
			if mode := f.node.OtherMode(); !strings.Contains(mode, tt.named) {
				t.Errorf("the other mode is %q; want it to name %q", mode, tt.named)
			}
			runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
				advance(time.Hour)
				if _, text := status(t, m, "/readyz"); !strings.Contains(text, "delete the CiliumNode once") {
					t.Errorf("the reason is %s; want the remedy in it", text)
				}
				if f.count(&f.patches)+f.count(&f.acquires) > 0 || m.published.Load() {
					t.Errorf("%d writes, %d acquisitions, ready %v", f.patches, f.acquires, m.published.Load())
				}
				f.wantEvents(t, "WrongIPAMMode")
			})
		})
	}
}

// Any client that may write the CiliumNode chooses its numbers, which cost neither the memory of the bridge nor slots.
func TestImpossibleSettings(t *testing.T) {
	for name, set := range map[string]func(n *ciliumnode.Node){
		"min-allocate": func(n *ciliumnode.Node) { n.Spec.IPAM.MinAllocate = math.MaxInt },
		"pre-allocate": func(n *ciliumnode.Node) { n.Spec.IPAM.PreAllocate = math.MaxInt },
		"above and max-allocate": func(n *ciliumnode.Node) {
			n.Spec.IPAM.MinAllocate, n.Spec.IPAM.MaxAboveWatermark, n.Spec.IPAM.MaxAllocate = 1<<40, math.MaxInt, math.MaxInt
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.hold(4)
			f.capacity = 20
			set(f.node)
			runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
				advance(time.Hour)
				f.wantPublished(t, f.capacity)
			})
		})
	}
}

// The fields of the CiliumNode take precedence over the flags.
func TestOwnSettings(t *testing.T) {
	flags := planner.Settings{MinAllocate: 8, PreAllocate: 9, MaxAllocate: 50, MaxAboveWatermark: 1, ReleaseExcess: true}
	n := &ciliumnode.Node{}
	if got := n.Settings(flags); got != flags {
		t.Errorf("without fields: got %+v", got)
	}
	flags.MaxPods = 110
	if got := n.Settings(flags); got.MaxPods != 110 || got.MaxAboveWatermark != 0 {
		t.Errorf("in a range of the node's own: got %+v", got)
	}
	own := &n.Spec.IPAM
	own.MinAllocate, own.PreAllocate, own.MaxAllocate, own.MaxAboveWatermark = 20, 16, 7, 5
	want := planner.Settings{MinAllocate: 20, PreAllocate: 16, MaxAllocate: 7, MaxAboveWatermark: 5, ReleaseExcess: true}
	if got := n.Settings(flags); got != want {
		t.Errorf("got %+v; want %+v", got, want)
	}
}
