package bridge

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
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
				if len(a.started) != 100 || len(a.failures) > 0 || a.slowest() > time.Second {
					t.Errorf("%d of 100 pods started, %d ADDs failed, the slowest pod waited %s; want none to wait", len(a.started), len(a.failures), a.slowest())
				}
				if n := f.count(&f.patches); n != 2 || len(f.pool()) != 113 {
					t.Errorf("%d writes for the pods, %d addresses; want no write", n-2, len(f.pool()))
				}
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
		if n := f.count(&f.acquires); n != requests || len(f.eventReasons()) > 0 || m.exhausted.age() > 0 {
			t.Errorf("%d more requests, Events %v, exhausted for %s; want none", n-requests, f.eventReasons(), m.exhausted.age())
		}
		f.update(func() { f.pods = 60 })
		advance(2 * time.Minute)
		if got := f.eventReasons(); !slices.Equal(got, []string{"PoolExhausted"}) {
			t.Errorf("with more pods than addresses the Events are %v; want PoolExhausted", got)
		}
		f.update(func() { f.pods = 40 })
		advance(2 * time.Minute)
		if age := m.exhausted.age(); age > 0 {
			t.Errorf("exhausted for %s after the pods have ended; want no more", age)
		}
		f.update(func() { f.pods, f.capacity = 48, 200 }) // another range
		advance(2 * time.Minute)
		if got := len(f.pool()); got != 113 {
			t.Errorf("%d addresses are published of a range that was extended; want 113", got)
		}
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
		if n := f.count(&f.acquires); len(f.pool()) != 5 || n != requests {
			t.Errorf("%d addresses are published, %d more requests in an hour; want 5, and none", len(f.pool()), n-requests)
		}
	})
}

// What auto depends on can be unknown at first, or change.
func TestAuto(t *testing.T) {
	const shared, own = 11, 113
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "worker", errors.New("RBAC"))
	for name, tt := range map[string]struct {
		before func(*fixture)
		first  int
		then   func(*fixture)
		second int
		events []string
	}{
		"the sidecar waits for its configuration": {func(f *fixture) { f.store = "" }, shared, func(f *fixture) { f.store = storeOnNode }, own, nil},
		"another plugin":                 {func(*fixture) {}, own, func(f *fixture) { f.store = "remote" }, shared, nil},
		"store on a server":              {func(f *fixture) { f.store = "remote" }, shared, func(*fixture) {}, shared, nil},
		"no right to read the Node":      {func(f *fixture) { f.allocatableErr = forbidden }, shared, func(f *fixture) { f.allocatableErr = nil }, own, []string{"NotPermitted"}},
		"more pods are allowed":          {func(*fixture) {}, own, func(f *fixture) { f.allocatable = 150 }, 153, nil},
		"fewer pods are allowed":         {func(*fixture) {}, own, func(f *fixture) { f.allocatable = 20 }, 23, nil},
		"pre-allocate of the CiliumNode": {func(f *fixture) { f.node.Spec.IPAM.PreAllocate = 20 }, 23, func(*fixture) {}, 23, nil},
		"max-allocate of the CiliumNode": {func(f *fixture) { f.node.Spec.IPAM.MaxAllocate = 40 }, 40, func(*fixture) {}, 40, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newOwnRange()
			tt.before(f)
			runController(t, f, defaultSettings(), func(t *testing.T, m *metrics) {
				advance(2 * time.Minute)
				if got := len(f.pool()); got != tt.first {
					t.Errorf("%d addresses are published; want %d", got, tt.first)
				}
				f.update(func() { tt.then(f) })
				advance(time.Hour)
				if got := len(f.pool()); got != tt.second {
					t.Errorf("then %d addresses are published; want %d", got, tt.second)
				}
				if got := f.eventReasons(); !slices.Equal(got, tt.events) {
					t.Errorf("the Events are %v; want %v", got, tt.events)
				}
				if n := testutil.ToFloat64(m.reconcileErrors.WithLabelValues(reasonNotPermitted)); n > 0 {
					t.Errorf("%v reconciliations failed; want none", n)
				}
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
		if got := len(f.pool()); got != 3 {
			t.Errorf("after 3 s %d addresses are published; want the agent's 3", got)
		}
		advance(maxBatch)
		if got := len(f.pool()); got < 20 {
			t.Errorf("%s later %d addresses are published; want those that were acquired", maxBatch, got)
		}
		advance(time.Minute)
		if n := f.count(&f.patches); len(f.pool()) != 113 || n > 8 {
			t.Errorf("%d addresses are published by %d writes; want 113 by at most 8", len(f.pool()), n)
		}
	})
}
