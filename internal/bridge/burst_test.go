package bridge

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// 100 pods are bound to one node within a second.
func TestBurst(t *testing.T) {
	for name, tt := range map[string]struct {
		interval    time.Duration
		watchesPods bool
		// slowest is the longest wait for an address, failing the time of the last failed ADD.
		slowest, failing time.Duration
		patches          int
	}{
		"update rate 1 s":  {time.Second, true, 5 * time.Second, time.Second, 15},
		"update rate 15 s": {15 * time.Second, true, 8 * time.Second, time.Second, 15},
		// With the delays of the kubelet.
		"update rate 1 s, without watch":  {time.Second, false, 70 * time.Second, 35 * time.Second, 20},
		"update rate 15 s, without watch": {15 * time.Second, false, 5 * time.Minute, 3 * time.Minute, 20},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.latency, f.apiLatency, f.watchesPods = 20*time.Millisecond, 10*time.Millisecond, tt.watchesPods
			runController(t, f, defaultSettings(), func(t *testing.T, _ *metrics) {
				advance(10 * time.Second)
				a := startAgent(t.Context(), f, tt.interval)
				defer a.stop()
				advance(time.Minute)
				f.patches, f.gets, a.start = 0, 0, time.Now()
				for range 100 {
					a.addPod(0)
					advance(10 * time.Millisecond)
				}
				advance(5 * time.Minute)
				if n := len(a.started); n != 100 {
					t.Fatalf("%d pods have an address", n)
				}
				if got := a.slowest(); got > tt.slowest {
					t.Errorf("the slowest pod waited %s; want %s", got, tt.slowest)
				}
				if len(a.failures) > 0 && slices.Max(a.failures) > tt.failing {
					t.Errorf("%d ADDs failed, the last after %s; want none after %s", len(a.failures), slices.Max(a.failures), tt.failing)
				}
				if f.patches > tt.patches {
					t.Errorf("%d writes; want at most %d", f.patches, tt.patches)
				}
				if f.gets > 0 && tt.watchesPods {
					t.Errorf("%d reads; want none", f.gets)
				}
			})
		})
	}
}

// Pods that are known at the same time cost one write for each batch.
func TestBurstAtOnce(t *testing.T) {
	f := newFixture()
	runController(t, f, defaultSettings(), func(t *testing.T, _ *metrics) {
		advance(time.Minute)
		before := f.count(&f.patches)
		f.update(func() { f.pods = 100 })
		advance(time.Second)
		if n := f.count(&f.patches) - before; n > 6 || len(f.pool()) != 111 {
			t.Errorf("%d writes, %d addresses; want at most 6, and 111", n, len(f.pool()))
		}
	})
}

// Pods start and end all the time.
func TestChurn(t *testing.T) {
	for name, tt := range map[string]struct {
		settings planner.Settings
		most     float64
	}{
		"recommended watermarks": {planner.Settings{MinAllocate: 8, PreAllocate: 8, MaxAboveWatermark: 8, ReleaseExcess: true}, 0.3},
		"defaults":               {defaultSettings(), 0.3},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.latency, f.apiLatency, f.watchesPods = 20*time.Millisecond, 10*time.Millisecond, true
			runController(t, f, tt.settings, func(t *testing.T, _ *metrics) {
				advance(10 * time.Second)
				a := startAgent(t.Context(), f, 15*time.Second)
				defer a.stop()
				random := rand.New(rand.NewPCG(1, 2))
				add := func(d time.Duration) (pods int) {
					for end := time.Now().Add(d); time.Now().Before(end); pods++ {
						a.addPod(time.Duration(random.ExpFloat64() * float64(time.Minute)))
						advance(time.Duration(random.ExpFloat64() * float64(2*time.Second)))
					}
					return pods
				}
				add(10 * time.Minute)
				before := f.count(&f.patches) + f.count(&f.gets)
				pods := add(time.Hour)
				requests := f.count(&f.patches) + f.count(&f.gets) - before
				if per := float64(requests) / float64(pods); per > tt.most {
					t.Errorf("%d requests for %d pods, %.2f each; want at most %.2f", requests, pods, per, tt.most)
				}
				if len(a.failures) > 0 {
					t.Errorf("%d ADDs failed", len(a.failures))
				}
			})
		})
	}
}

// A slot for a pod is acquired and published in one reconciliation. It and the event of its write are
// followed by one that finds nothing left to do.
func TestOnePass(t *testing.T) {
	f := newFixture()
	f.hold(11)
	f.watchesPods = true
	runController(t, f, defaultSettings(), func(t *testing.T, _ *metrics) {
		advance(time.Second)
		lists, patches := f.count(&f.lists), f.count(&f.patches)
		f.update(func() { f.pods = 1 })
		advance(time.Second)
		f.wantPublished(t, 12)
		if lists, patches = f.count(&f.lists)-lists, f.count(&f.patches)-patches; lists != 3 || patches != 1 {
			t.Errorf("the sidecar was listed %d times, and %d patches were written; want 3 and 1", lists, patches)
		}
	})
}
