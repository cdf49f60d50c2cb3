package bridge

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// defaultSettings are the defaults of the flags.
func defaultSettings() planner.Settings {
	return planner.Settings{MinAllocate: 8, PreAllocate: 8, ReleaseExcess: true}
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
		if got := len(f.pool()); got != 35 {
			t.Errorf("after 23 s %d addresses are published; want all 35", got)
		}
		// 3, then in batches that take longer and longer.
		if n := f.count(&f.patches); n > 6 {
			t.Errorf("%d writes; want at most 6", n)
		}
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
				if n := f.count(&f.patches); n != writes || len(f.pool()) != 11 {
					t.Errorf("%d writes after the start of the agent, the pool is %v; want none", n-writes, f.pool())
				}
			})
		})
	}
}

func TestExhaustedThenFree(t *testing.T) {
	f := newFixture()
	f.capacity = 5
	runController(t, f, defaultSettings(), func(t *testing.T, _ *metrics) {
		advance(40 * time.Minute)
		f.mu.Lock()
		f.capacity = 100 // another node has released some, which is not an event
		f.mu.Unlock()
		advance(time.Minute)
		if got := len(f.pool()); got != 11 {
			t.Errorf("%d addresses are published a minute after there are more; want 11", got)
		}
	})
}

// A refused request affects one slot only.
func TestIndependence(t *testing.T) {
	refused := &failure{refused: true, reason: reasonSidecarBusy, err: errors.New("the queue is full"), after: time.Second}
	t.Run("restore beside held slots", func(t *testing.T) {
		f := newFixture()
		f.hold(10)
		clear(f.node.Spec.IPAM.Pool)
		f.node.Status.IPAM.Used = map[string]planner.Entry{ip(99).String(): {Resource: planner.EntryOf(98, false).Resource}}
		f.requestErr = refused
		runController(t, f, defaultSettings(), func(t *testing.T, m *metrics) {
			advance(time.Second)
			if got := len(f.pool()); got != 10 {
				t.Errorf("%d addresses are published; want the 10 that are held", got)
			}
			if got := testutil.ToFloat64(m.acquisitions.WithLabelValues(outcomeRefused)); got < 1 {
				t.Errorf("%v refusals are counted", got)
			}
			advance(10 * time.Minute)
			if got := f.eventReasons(); !slices.Equal(got, []string{"AddressNotHeld", "SidecarBusy"}) && !slices.Equal(got, []string{"SidecarBusy", "AddressNotHeld"}) {
				t.Errorf("the Events are %v", got)
			}
			f.update(func() { f.requestErr = nil })
			advance(time.Minute)
			if !slices.Contains(f.pool(), ip(99).String()) {
				t.Errorf("the used address is not published after it was restored: %v", f.pool())
			}
		})
	})
	t.Run("release beside a need", func(t *testing.T) {
		f := newFixture()
		f.hold(8)
		f.unreleasable[ip(6)] = true
		runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
			advance(2 * drainDelay)
			if got := testutil.ToFloat64(m.handshakes.WithLabelValues(outcomeReleased)); got != 3 {
				t.Errorf("%v addresses were released; want all but the one that fails", got)
			}
			f.pods = 1
			f.setUsed(ip(1), ip(2), ip(3), ip(4))
			advance(time.Second)
			if got := len(f.pool()); got != 5 {
				t.Errorf("%d addresses are published; want one more, 5", got)
			}
			if got := f.eventReasons(); !slices.Equal(got, []string{"PluginFailed"}) {
				t.Errorf("the Events are %v; want PluginFailed once", got)
			}
			f.update(func() { clear(f.unreleasable) })
			advance(time.Minute)
			if _, held := f.held[5]; held || len(f.node.Status.IPAM.ReleaseIPs) > 0 {
				t.Errorf("the release is not repeated: %v, %v", f.held, f.node.Status.IPAM.ReleaseIPs)
			}
		})
	})
	t.Run("stopping sidecar", func(t *testing.T) {
		f := newFixture()
		f.requestErr = refused
		runController(t, f, defaultSettings(), func(t *testing.T, m *metrics) {
			advance(20 * time.Second)
			f.update(func() { f.requestErr = nil })
			advance(3 * time.Second)
			if got := len(f.pool()); got != 11 {
				t.Errorf("%d addresses are published 3 s after the sidecar answers; want 11", got)
			}
			if got := f.eventReasons(); len(got) > 0 {
				t.Errorf("the Events are %v; want none", got)
			}
			if got := testutil.ToFloat64(m.acquisitions.WithLabelValues(outcomeExhausted)); got > 0 {
				t.Errorf("%v exhaustions are counted", got)
			}
		})
	})
}
