package bridge

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// sidecarAway is an error of a sidecar that does not answer.
func sidecarAway() error { return &reconcileError{reasonSidecarUnavailable, errors.New("away")} }

func TestScaleDown(t *testing.T) {
	f := newFixture()
	runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
		// Router, health, ingress and one more, which is being released.
		if got := f.pool(); !slices.Equal(got, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4*"}) {
			t.Errorf("before any time has passed the pool is %v", got)
		}
		if !m.ready.Load() {
			t.Error("not ready although the pool is published")
		}
		waitForScaleDown(t, f)
		if got := testutil.ToFloat64(m.handshakes.WithLabelValues(outcomeReleased)); got != 1 {
			t.Errorf("%v handshakes ended with a release; want 1", got)
		}
		if len(f.held) != 3 {
			t.Errorf("the sidecar holds %v; want 3 slots", f.held)
		}
	})
}

func TestDrain(t *testing.T) {
	const cordoned, plain = "10.0.0.4*", "10.0.0.4"
	withdrawn := func(f *fixture) bool {
		return !slices.Contains(f.pool(), cordoned) && !slices.Contains(f.pool(), plain)
	}
	for name, test := range map[string]func(t *testing.T, f *fixture, m *metrics){
		"takes the delay": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay - time.Second)
			if withdrawn(f) {
				t.Error("withdrawn before the delay")
			}
			advance(2 * time.Second)
			if !withdrawn(f) {
				t.Errorf("not withdrawn: %v", f.pool())
			}
		},
		"restarts when the API server was away": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay / 2)
			f.update(func() { f.apiErr = errors.New("away") })
			advance(drainDelay)
			f.update(func() { f.apiErr = nil })
			advance(drainDelay - 30*time.Second)
			if withdrawn(f) {
				t.Error("time in which the agent could not write has counted")
			}
			advance(2 * drainDelay)
			if !withdrawn(f) {
				t.Errorf("not withdrawn: %v", f.pool())
			}
		},
		"restarts when sidecar and API server were away": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay / 2)
			// The sidecar is called first: that the API server is away, too, is not observed.
			f.update(func() { f.sidecarErr = sidecarAway() })
			advance(time.Minute)
			f.update(func() { f.apiErr = errors.New("away") })
			advance(drainDelay)
			f.update(func() { f.apiErr, f.sidecarErr = nil, nil })
			advance(drainDelay - 30*time.Second)
			if withdrawn(f) {
				t.Error("time in which the agent could not write has counted")
			}
			advance(2 * drainDelay)
			if !withdrawn(f) {
				t.Errorf("not withdrawn: %v", f.pool())
			}
		},
		"restarts for another CiliumNode": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay / 2)
			f.update(func() { f.node.Metadata.UID = "uid-2" })
			advance(drainDelay/2 + time.Minute)
			if withdrawn(f) {
				t.Error("the drain of an earlier CiliumNode has counted")
			}
		},
		"ends when the address is used": func(t *testing.T, f *fixture, m *metrics) {
			advance(drainDelay / 2)
			f.setUsed(ip(4))
			advance(10 * drainDelay)
			if !slices.Contains(f.pool(), plain) {
				t.Errorf("a used address was withdrawn: %v", f.pool())
			}
			if got := testutil.ToFloat64(m.used); got != 1 {
				t.Errorf("%v addresses count as used; want 1", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			runController(t, f, smallSettings(), func(t *testing.T, m *metrics) { test(t, f, m) })
		})
	}
	t.Run("needs an answer of the agent", func(t *testing.T) {
		f := newFixture()
		f.agentSilent = true
		runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
			advance(100 * drainDelay)
			if !slices.Contains(f.pool(), cordoned) {
				t.Errorf("withdrawn although the agent may not run: %v", f.pool())
			}
			if got := testutil.ToFloat64(m.releasing); got != 1 {
				t.Errorf("%v addresses count as being released; want 1", got)
			}
		})
	})
}

// Another client withdraws and releases a slot between two observations.
func TestConcurrentRelease(t *testing.T) {
	f := newFixture()
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		f.update(func() {
			f.beforeGet = func() {
				delete(f.node.Spec.IPAM.Pool, ip(4).String())
				delete(f.node.Status.IPAM.ReleaseIPs, planner.Probe.String())
				delete(f.held, 3)
			}
		})
		advance(10 * drainDelay)
		if f.beforeGet != nil || len(f.publishedUnheld) > 0 {
			t.Errorf("%v were published although they are not held", f.publishedUnheld)
		}
		if got, want := f.pool(), []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}; !slices.Equal(got, want) {
			t.Errorf("the pool is %v; want %v", got, want)
		}
	})
}
