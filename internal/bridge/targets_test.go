package bridge

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// defaultSettings are the defaults of the flags.
func defaultSettings() planner.Settings {
	o, _ := options.NewBridge(nil)
	return Settings(*o)
}

// A slow plugin delays the first publication by the addresses that the agent needs for its start only.
func TestSlowPlugin(t *testing.T) {
	f := newFixture()
	f.latency = 2 * time.Second
	runController(t, f, planner.Settings{MinAllocate: 8, PreAllocate: 32}, func(t *testing.T, m *metrics) {
		advance(3 * time.Second)
		if got := len(f.pool()); got < 3 || !m.published.Load() {
			t.Errorf("after 3 s %d addresses are published, ready %v; want 3 or more", got, m.published.Load())
		}
		advance(20 * time.Second)
		f.wantPublished(t, 35)
		// 3, then in batches that take longer and longer.
		between(t, "writes", f.count(&f.patches), 0, 6)
	})
}

// The agent of a fresh node takes its own addresses: nothing is released.
func TestFreshNode(t *testing.T) {
	for name, own := range map[string]int{"with ingress": 3, "without ingress": 2} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			runController(t, f, defaultSettings(), func(t *testing.T, _ *metrics) {
				advance(10 * time.Second)
				writes := f.count(&f.patches)
				for n := range own {
					f.setUsed(ip(1), ip(1+n))
				}
				advance(time.Hour)
				if n := f.count(&f.patches); n != writes || len(f.pool()) != 19 {
					t.Errorf("%d writes after the start of the agent, the pool is %v; want none", n-writes, f.pool())
				}
			})
		})
	}
}

// A refused request affects one slot only.
func TestIndependence(t *testing.T) {
	refused := &failure{refused: true, reason: reasonDaemonBusy, err: errors.New("the queue is full"), after: time.Second}
	t.Run("restore beside held slots", func(t *testing.T) {
		f := newFixture()
		f.hold(10)
		clear(f.node.Spec.IPAM.Pool)
		f.node.Status.IPAM.Used = map[string]planner.Entry{ip(99).String(): {Resource: planner.EntryOf(98, false).Resource}}
		f.requestErr = refused
		runController(t, f, defaultSettings(), func(t *testing.T, m *metrics) {
			advance(time.Second)
			f.wantPublished(t, 10)
			between(t, "refusals are counted", testutil.ToFloat64(m.acquisitions.WithLabelValues(outcomeRefused)), 1, 100)
			advance(10 * time.Minute)
			f.wantEvents(t, "AddressNotHeld", "DaemonBusy")
			f.update(func() { f.requestErr = nil })
			advance(time.Minute)
			f.wantInPool(t, ip(99).String(), true)
		})
	})
	t.Run("release beside a need", func(t *testing.T) {
		f := newFixture()
		f.hold(8)
		f.unreleasable[ip(6)] = true
		runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
			advance(2 * drainDelay)
			wantMetric(t, m.handshakes.WithLabelValues(outcomeReleased), 3)
			f.pods = 1
			f.setUsed(firstIPs(4)...)
			advance(time.Second)
			f.wantPublished(t, 5)
			f.wantEvents(t, "PluginFailed")
			f.update(func() { clear(f.unreleasable) })
			advance(time.Minute)
			if _, held := f.held[5]; held || len(f.node.Status.IPAM.ReleaseIPs) > 0 {
				t.Errorf("the release is not repeated: %v, %v", f.held, f.node.Status.IPAM.ReleaseIPs)
			}
		})
	})
	t.Run("stopping daemon", func(t *testing.T) {
		f := newFixture()
		f.requestErr = refused
		runController(t, f, defaultSettings(), func(t *testing.T, m *metrics) {
			advance(20 * time.Second)
			f.update(func() { f.requestErr = nil })
			advance(3 * time.Second)
			f.wantPublished(t, 19)
			f.wantEvents(t)
			wantMetric(t, m.acquisitions.WithLabelValues(outcomeExhausted), 0)
		})
	})
}
