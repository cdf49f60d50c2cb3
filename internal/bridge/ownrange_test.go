package bridge

import (
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// newOwnRange returns a node for 110 pods with auto, whose plugin keeps its allocations on the node.
func newOwnRange() *fixture {
	f := newFixture()
	f.store, f.allocatable, f.watchesPods = storeOnNode, 110, true
	f.latency, f.apiLatency = 20*time.Millisecond, 10*time.Millisecond
	return f
}

// The whole range is published by the first two writes; a burst and its end cost no write, and no pod
// waits.
func TestOwnRange(t *testing.T) {
	for name, watchesPods := range map[string]bool{"with the pods": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			f := newOwnRange()
			f.watchesPods = watchesPods
			runController(t, f, defaultSettings(), func(t *testing.T, _ *metrics) {
				advance(time.Second)
				if got := len(f.pool()); got != 113 || f.count(&f.patches) != 2 {
					t.Fatalf("%d addresses are published by %d writes; want 113 by 2", got, f.count(&f.patches))
				}
				a := startAgent(t.Context(), f, 15*time.Second)
				defer a.stop()
				advance(time.Minute)
				for range 100 {
					a.addPod(time.Minute)
				}
				advance(time.Hour)
				if got := len(a.started); got != 100 {
					t.Fatalf("%d pods have started; want 100", got)
				}
				between(t, "failed ADDs", len(a.failures), 0, 0)
				between(t, "is the longest wait", slices.Max(a.started), 0, time.Second)
				between(t, "writes", f.count(&f.patches), 2, 2)
				f.wantPublished(t, 113)
			})
		})
	}
}

// A range with fewer addresses than the node could use is published as far as it goes, and that is no
// problem until pods need more.
func TestSmallOwnRange(t *testing.T) {
	f := newOwnRange()
	f.capacity = 50
	runController(t, f, defaultSettings(), func(t *testing.T, m *metrics) {
		advance(time.Second)
		requests := f.count(&f.acquires)
		if got := len(f.pool()); got != 50 || requests > 50+maxRequests {
			t.Fatalf("%d addresses are published after %d requests; want 50", got, requests)
		}
		advance(time.Hour)
		between(t, "more requests", f.count(&f.acquires)-requests, 0, 0)
		between(t, "of exhaustion", m.exhausted.age(), 0, 0)
		f.wantEvents(t)
		f.update(func() { f.pods = 60 })
		advance(2 * time.Minute)
		f.wantEvents(t, "PoolExhausted")
		f.update(func() { f.pods = 40 })
		advance(2 * time.Minute)
		between(t, "of exhaustion after the pods have ended", m.exhausted.age(), 0, 0)
		f.update(func() { f.pods, f.capacity = 48, 200 }) // another range
		advance(2 * time.Minute)
		f.wantPublished(t, 113)
	})
}

// The first publication does not wait for a range that is too small for it.
func TestSmallOwnRangeAtStart(t *testing.T) {
	f := newOwnRange()
	f.capacity, f.pods = 5, 2
	f.podIPs[ip(200)] = true
	runController(t, f, defaultSettings(), func(t *testing.T, _ *metrics) {
		advance(time.Minute)
		requests := f.count(&f.acquires)
		advance(time.Hour)
		between(t, "more requests in an hour", f.count(&f.acquires)-requests, 0, 0)
		f.wantPublished(t, 5)
	})
}

// What auto depends on can be unknown at first, or change.
func TestAuto(t *testing.T) {
	const shared, own = 19, 113
	flags := func(f *fixture) {
		ipam := &f.node.Spec.IPAM
		ipam.MinAllocate, ipam.PreAllocate, ipam.MaxAllocate, ipam.MaxAboveWatermark = 0, 0, 0, 0
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "worker", errors.New("RBAC"))
	for name, tt := range map[string]struct {
		before func(*fixture)
		first  int
		then   func(*fixture)
		second int
		events []string
	}{
		"the daemon waits for its configuration": {func(f *fixture) { f.store = "" }, shared, func(f *fixture) { f.store = storeOnNode }, own, nil},
		"another plugin":                         {func(*fixture) {}, own, func(f *fixture) { f.store = "remote" }, shared, nil},
		"store on a server":                      {func(f *fixture) { f.store = "remote" }, shared, func(*fixture) {}, shared, nil},
		"no right to read the Node":              {func(f *fixture) { f.allocatableErr = forbidden }, shared, func(f *fixture) { f.allocatableErr = nil }, own, []string{"NotPermitted"}},
		"more pods are allowed":                  {func(*fixture) {}, own, func(f *fixture) { f.allocatable = 150 }, 153, nil},
		"fewer pods are allowed":                 {func(*fixture) {}, own, func(f *fixture) { f.allocatable = 20 }, 23, nil},
		"pre-allocate of the CiliumNode":         {func(f *fixture) { f.node.Spec.IPAM.PreAllocate = 20 }, 31, flags, own, nil},
		"max-allocate of the CiliumNode":         {func(f *fixture) { f.node.Spec.IPAM.MaxAllocate = 40 }, 40, flags, own, nil},
		"min-allocate, store on a server":        {func(f *fixture) { f.store, f.node.Spec.IPAM.MinAllocate = "remote", 20 }, 28, flags, shared, nil},
		"pre-allocate, store on a server":        {func(f *fixture) { f.store, f.node.Spec.IPAM.PreAllocate = "remote", 16 }, 27, flags, shared, nil},
		"max-allocate, store on a server":        {func(f *fixture) { f.store, f.node.Spec.IPAM.MaxAllocate = "remote", 7 }, 7, flags, shared, nil},
		// The watermark also allocates ahead.
		"max-above-watermark, store on a server": {func(f *fixture) { f.store, f.node.Spec.IPAM.MaxAboveWatermark = "remote", 12 }, 23, flags, shared, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newOwnRange()
			tt.before(f)
			runController(t, f, defaultSettings(), func(t *testing.T, m *metrics) {
				advance(2 * time.Minute)
				f.wantPublished(t, tt.first)
				f.update(func() { tt.then(f) })
				advance(time.Hour)
				f.wantPublished(t, tt.second)
				f.wantEvents(t, tt.events...)
				wantMetric(t, m.reconcileErrors.WithLabelValues(reasonNotPermitted), 0)
			})
		})
	}
}

// A slow plugin does not delay what it has allocated.
func TestSlowPluginOfOwnRange(t *testing.T) {
	f := newOwnRange()
	f.latency = 2 * time.Second
	runController(t, f, defaultSettings(), func(t *testing.T, _ *metrics) {
		advance(3 * time.Second)
		f.wantPublished(t, 3)
		advance(maxBatch)
		between(t, "addresses are published a batch later", len(f.pool()), 20, 113)
		advance(time.Minute)
		f.wantPublished(t, 113)
		between(t, "writes", f.count(&f.patches), 0, 8)
	})
}
