package bridge

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// An excess of 100 slots is released as one set: two delays, and less than one write for two slots.
func TestExcess(t *testing.T) {
	f := newFixture()
	f.hold(104)
	runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
		advance(drainDelay - time.Second)
		between(t, "writes before the excess has lasted", f.count(&f.patches), 0, 0)
		advance(2*time.Second + drainDelay/2)
		f.wantPublished(t, 4)
		between(t, "slots are held", len(f.held), 4, 4)
		// Suspend, ping, marks, withdrawal, released.
		between(t, "writes for 100 addresses", f.count(&f.patches), 0, 5)
		wantMetric(t, m.handshakes.WithLabelValues(outcomeReleased), 100)
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
				between(t, "writes before the excess has lasted", f.count(&f.patches), 0, 0)
				advance(2*time.Second + drainDelay)
				f.wantPublished(t, wanted)
				between(t, "slots are held", len(f.held), wanted, wanted)
			})
		})
	}
}

// One pod ends and another one starts before the excess has lasted.
func TestPodReplaced(t *testing.T) {
	f := newFixture()
	f.hold(10)
	f.setUsed(firstIPs(9)...)
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		advance(time.Hour)
		for range 10 {
			f.setUsed(firstIPs(8)...)
			advance(30 * time.Second)
			f.setUsed(append(firstIPs(8), ip(10))...)
			advance(10 * time.Second)
		}
		if f.count(&f.patches)+f.count(&f.gets) > 0 {
			t.Errorf("%d writes and %d reads; want none", f.patches, f.gets)
		}
	})
}

func TestDrain(t *testing.T) {
	const suspended, plain = "10.0.0.5*", "10.0.0.5"
	wantWithdrawn := func(t *testing.T, f *fixture, want bool) {
		t.Helper()
		if got := !slices.Contains(f.pool(), suspended) && !slices.Contains(f.pool(), plain); got != want {
			t.Errorf("withdrawn is %t; want %t: %v", got, want, f.pool())
		}
	}
	// whole is the time of a drain that starts again.
	whole := func(t *testing.T, f *fixture) {
		t.Helper()
		advance(drainDelay/2 - 2*time.Second)
		wantWithdrawn(t, f, false)
		advance(15 * time.Second)
		wantWithdrawn(t, f, true)
	}
	for name, test := range map[string]func(t *testing.T, f *fixture, m *metrics){
		"takes half the delay": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay/2 - 2*time.Second)
			wantWithdrawn(t, f, false)
			advance(3 * time.Second)
			wantWithdrawn(t, f, true)
		},
		"restarts when the API server was away": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay / 4)
			f.apiAway(true)
			advance(drainDelay)
			f.apiAway(false)
			whole(t, f)
		},
		"restarts when daemon and API server were away": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay / 4)
			f.daemonAway(true)
			advance(time.Minute)
			f.apiAway(true)
			advance(drainDelay)
			f.daemonErr = nil
			f.apiAway(false)
			whole(t, f)
		},
		"continues while the daemon is away": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay / 4)
			f.daemonAway(true)
			advance(drainDelay / 4)
			f.daemonAway(false)
			advance(15 * time.Second)
			wantWithdrawn(t, f, true)
		},
		"restarts for another CiliumNode": func(t *testing.T, f *fixture, _ *metrics) {
			advance(drainDelay / 4)
			f.update(func() { f.node.Metadata.UID = "uid-2" })
			advance(drainDelay / 3)
			wantWithdrawn(t, f, false)
		},
		"ends when the address is used": func(t *testing.T, f *fixture, m *metrics) {
			advance(drainDelay / 4)
			f.setUsed(ip(5))
			advance(drainDelay * 3 / 4)
			f.wantInPool(t, plain, true)
			wantMetric(t, m.used, 1)
		},
		"needs an answer of the agent": func(t *testing.T, f *fixture, m *metrics) {
			f.update(func() {
				f.agentSilent = true
				clear(f.node.Status.IPAM.ReleaseIPs)
			})
			advance(100 * drainDelay)
			wantWithdrawn(t, f, false)
			wantMetric(t, m.releasing, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.hold(5)
			runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
				advance(drainDelay + coalesce)
				f.wantInPool(t, suspended, true)
				test(t, f, m)
			})
		})
	}
}

// Outages that are shorter than the delays do not keep the excess.
func TestOutages(t *testing.T) {
	for name, away := range map[string]func(f *fixture, is bool){
		"daemon": (*fixture).daemonAway, "API server": (*fixture).apiAway,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			f.hold(8)
			runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
				for range 24 * 30 { // a day
					away(f, true)
					advance(5 * time.Second)
					away(f, false)
					advance(2*time.Minute - 5*time.Second)
				}
				f.wantPublished(t, 4)
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
		f.wantSmallPool(t)
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
			synctest.Test(t, func(t *testing.T) {
				s := newState(time.Minute)
				for i, slots := range tt.slots {
					if i > 0 {
						time.Sleep(10 * time.Second)
					}
					s.excess.observe(slots)
				}
				if got := s.lasting(30 * time.Second); got != tt.want {
					t.Errorf("%d have lasted, want %d: %v", got, tt.want, s.excess)
				}
			})
		})
	}
}
