package bridge

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
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
				if got := len(a.started); got != 100 {
					t.Fatalf("%d pods have an address; want 100", got)
				}
				between(t, "is the longest wait", slices.Max(a.started), 0, tt.slowest)
				between(t, "is the time of the last failed ADD", slices.Max(append(a.failures, 0)), 0, tt.failing)
				between(t, "writes", f.patches, 0, tt.patches)
				if tt.watchesPods {
					between(t, "reads", f.gets, 0, 0)
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
		between(t, "writes", f.count(&f.patches)-before, 1, 6)
		f.wantPublished(t, 119)
	})
}

// Pods start and end all the time.
func TestChurn(t *testing.T) {
	f := newFixture()
	f.latency, f.apiLatency, f.watchesPods = 20*time.Millisecond, 10*time.Millisecond, true
	runController(t, f, defaultSettings(), func(t *testing.T, _ *metrics) {
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
		between(t, "requests for each pod", float64(requests)/float64(pods), 0, 0.3)
		between(t, "failed ADDs", len(a.failures), 0, 0)
	})
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
		f.wantPublished(t, 20)
		between(t, "lists of the daemon", f.count(&f.lists)-lists, 3, 3)
		between(t, "writes", f.count(&f.patches)-patches, 1, 1)
	})
}
