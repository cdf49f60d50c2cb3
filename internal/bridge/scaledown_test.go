package bridge

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// sidecarAway is an error of a sidecar that does not respond.
func sidecarAway() error { return fail(reasonSidecarUnavailable, errors.New("away")) }

// An excess of 100 slots is released as one set: two delays, and less than one write for two slots.
func TestExcess(t *testing.T) {
	f := newFixture()
	f.hold(104)
	runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
		advance(drainDelay - time.Second)
		if n := f.count(&f.patches); n > 0 {
			t.Errorf("%d writes before the excess has lasted", n)
		}
		advance(2*time.Second + drainDelay/2)
		if len(f.pool()) != 4 || len(f.held) != 4 {
			t.Errorf("after %s %d addresses are published and %d slots held; want 4", drainDelay*3/2, len(f.pool()), len(f.held))
		}
		// Suspend, ping, marks, withdrawal, released.
		if n := f.count(&f.patches); n > 5 {
			t.Errorf("%d writes for 100 addresses; want 5", n)
		}
		if got := testutil.ToFloat64(m.handshakes.WithLabelValues(outcomeReleased)); got != 100 {
			t.Errorf("%v handshakes ended with a release; want 100", got)
		}
	})
}

// One slot costs as many writes as a set, so an excess below half of the watermark waits for more.
func TestSmallExcess(t *testing.T) {
	for excess, after := range map[int]time.Duration{3: smallExcessDelays * drainDelay, 4: drainDelay} {
		t.Run(fmt.Sprint(excess), func(t *testing.T) {
			f := newFixture()
			settings := smallSettings()
			settings.MaxAboveWatermark = 8
			wanted := 4 + settings.MaxAboveWatermark
			f.hold(wanted + excess)
			runController(t, f, settings, func(t *testing.T, _ *metrics) {
				advance(after - time.Second)
				if n := f.count(&f.patches); n > 0 {
					t.Errorf("%d writes before the excess has lasted for %s", n, after)
				}
				advance(2*time.Second + drainDelay)
				if len(f.pool()) != wanted || len(f.held) != wanted {
					t.Errorf("%d addresses are published and %d slots held; want %d", len(f.pool()), len(f.held), wanted)
				}
			})
		})
	}
}

// The smallest excess of the release delay is released.
func TestExcessShrinks(t *testing.T) {
	f := newFixture()
	f.hold(20)
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		advance(drainDelay / 2)
		f.setUsed(ip(1), ip(2), ip(3), ip(4), ip(5), ip(6), ip(7))
		advance(time.Second)
		f.setUsed(ip(1), ip(2), ip(3))
		advance(drainDelay * 5 / 4)
		if got := len(f.pool()); got != 8 {
			t.Errorf("%d addresses are published; want the 8 that were needed within the delay", got)
		}
		advance(drainDelay)
		if got := len(f.pool()); got != 4 {
			t.Errorf("%d addresses are published; want 4", got)
		}
	})
}

// One pod ends and another one starts before the excess has lasted.
func TestPodReplaced(t *testing.T) {
	f := newFixture()
	f.hold(10)
	f.setUsed(ip(1), ip(2), ip(3), ip(4), ip(5), ip(6), ip(7), ip(8), ip(9))
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		advance(time.Hour)
		for range 10 {
			f.setUsed(ip(1), ip(2), ip(3), ip(4), ip(5), ip(6), ip(7), ip(8))
			advance(30 * time.Second)
			f.setUsed(ip(1), ip(2), ip(3), ip(4), ip(5), ip(6), ip(7), ip(8), ip(10))
			advance(10 * time.Second)
		}
		if f.count(&f.patches)+f.count(&f.gets) > 0 {
			t.Errorf("%d writes and %d reads; want none", f.patches, f.gets)
		}
	})
}

func TestDrain(t *testing.T) {
	const suspended, plain = "10.0.0.5*", "10.0.0.5"
	withdrawn := func(f *fixture) bool {
		return !slices.Contains(f.pool(), suspended) && !slices.Contains(f.pool(), plain)
	}
	for name, test := range map[string]func(t *testing.T, f *fixture, m *metrics){
		"takes half the delay": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay/2 - 2*time.Second)
			if withdrawn(f) {
				t.Error("withdrawn before the delay")
			}
			advance(3 * time.Second)
			if !withdrawn(f) {
				t.Errorf("not withdrawn: %v", f.pool())
			}
		},
		"restarts when the API server was away": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay / 4)
			f.update(func() { f.apiErr, f.watchDown = errors.New("away"), true })
			advance(drainDelay)
			f.update(func() { f.apiErr, f.watchDown = nil, false })
			advance(drainDelay/2 - 2*time.Second)
			if withdrawn(f) {
				t.Error("time in which the agent could not write has counted")
			}
			advance(15 * time.Second)
			if !withdrawn(f) {
				t.Errorf("not withdrawn: %v", f.pool())
			}
		},
		"restarts when sidecar and API server were away": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay / 4)
			f.update(func() { f.sidecarErr = sidecarAway() })
			advance(time.Minute)
			f.update(func() { f.apiErr, f.watchDown = errors.New("away"), true })
			advance(drainDelay)
			f.update(func() { f.apiErr, f.watchDown, f.sidecarErr = nil, false, nil })
			advance(drainDelay/2 - 2*time.Second)
			if withdrawn(f) {
				t.Error("time in which the agent could not write has counted")
			}
			advance(15 * time.Second)
			if !withdrawn(f) {
				t.Errorf("not withdrawn: %v", f.pool())
			}
		},
		"continues while the sidecar is away": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay / 4)
			f.update(func() { f.sidecarErr = sidecarAway() })
			advance(drainDelay / 4)
			f.update(func() { f.sidecarErr = nil })
			advance(15 * time.Second)
			if !withdrawn(f) {
				t.Errorf("not withdrawn: %v", f.pool())
			}
		},
		"restarts for another CiliumNode": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay / 4)
			f.update(func() { f.node.Metadata.UID = "uid-2" })
			advance(drainDelay / 3)
			if withdrawn(f) {
				t.Error("the drain of an earlier CiliumNode has counted")
			}
		},
		"ends when the address is used": func(t *testing.T, f *fixture, m *metrics) {
			advance(drainDelay / 4)
			f.setUsed(ip(5))
			advance(drainDelay * 3 / 4)
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
			f.hold(5)
			runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
				advance(drainDelay + coalesce)
				if !slices.Contains(f.pool(), suspended) {
					t.Fatalf("not suspended: %v", f.pool())
				}
				test(t, f, m)
			})
		})
	}
	t.Run("needs an answer of the agent", func(t *testing.T) {
		f := newFixture()
		f.hold(5)
		f.agentSilent = true
		runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
			advance(100 * drainDelay)
			if !slices.Contains(f.pool(), suspended) {
				t.Errorf("withdrawn although the agent may not run: %v", f.pool())
			}
			if got := testutil.ToFloat64(m.releasing); got != 1 {
				t.Errorf("%v addresses count as being released; want 1", got)
			}
		})
	})
}

// Outages that are shorter than the delays do not keep the excess.
func TestOutages(t *testing.T) {
	for name, away := range map[string]func(f *fixture, is bool){
		"sidecar": func(f *fixture, is bool) {
			f.sidecarErr = nil
			if is {
				f.sidecarErr = sidecarAway()
			}
		},
		"API server": func(f *fixture, is bool) {
			f.apiErr, f.watchDown = nil, is
			if is {
				f.apiErr = errors.New("away")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.hold(8)
			runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
				for range 24 * 30 {
					f.update(func() { away(f, true) })
					advance(5 * time.Second)
					f.update(func() { away(f, false) })
					advance(2*time.Minute - 5*time.Second)
				}
				if got := len(f.pool()); got != 4 {
					t.Errorf("after a day with an outage every two minutes %d addresses are published; want 4", got)
				}
			})
		})
	}
}

// Another client withdraws and releases a slot between two observations.
func TestConcurrentRelease(t *testing.T) {
	f := newFixture()
	f.hold(5)
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		advance(drainDelay + coalesce)
		f.update(func() {
			f.beforeGet = func() {
				delete(f.node.Spec.IPAM.Pool, ip(5).String())
				delete(f.node.Status.IPAM.ReleaseIPs, planner.Ping.String())
				delete(f.held, 4)
			}
		})
		advance(10 * drainDelay)
		if f.beforeGet != nil || len(f.publishedUnheld) > 0 {
			t.Errorf("%v were published although they are not held", f.publishedUnheld)
		}
		if got, want := f.pool(), []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}; !slices.Equal(got, want) {
			t.Errorf("the pool is %v; want %v", got, want)
		}
	})
}

func TestExcessWindow(t *testing.T) {
	for name, tt := range map[string]struct {
		// slots is the excess at 0 s, 10 s, 20 s, …
		slots []int
		// want is the excess that has lasted for 30 s, at the time of the last.
		want int
	}{
		"not long enough": {[]int{5, 5, 5}, 0},
		"long enough":     {[]int{5, 5, 5, 5}, 5},
		"the smallest":    {[]int{5, 2, 7, 7}, 2},
		"interrupted":     {[]int{5, 5, 0, 5, 5}, 0},
		"growing":         {[]int{1, 2, 3, 4, 5}, 2},
		"an earlier dip":  {[]int{5, 1, 5, 5, 5}, 1},
		"a dip before":    {[]int{1, 5, 5, 5, 5}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			runSimulated(t, func() {
				var w excessWindow
				for i, slots := range tt.slots {
					if i > 0 {
						time.Sleep(10 * time.Second)
					}
					w.observe(slots)
				}
				if got := w.lasting(30 * time.Second); got != tt.want {
					t.Errorf("%d have lasted, want %d: %v", got, tt.want, fmt.Sprint(w))
				}
			})
		})
	}
}
