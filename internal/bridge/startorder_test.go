package bridge

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// The parts of an installation may start in any order: only a wait of a minute or more is a Warning.
func TestStartOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		begin, end func(f *fixture)
		reason     string
	}{
		"bridge before daemon": {
			func(f *fixture) { f.daemonErr = errAway() }, func(f *fixture) { f.daemonErr = nil }, "DaemonUnavailable",
		},
		"daemon before its configuration": {
			func(f *fixture) { f.capacity = 0 }, func(f *fixture) { f.capacity = 100 }, "PoolExhausted",
		},
		"daemon before its configuration, with used addresses": {
			func(f *fixture) {
				f.node.Spec.IPAM.Pool = map[string]planner.Entry{ip(1).String(): {Resource: "delegated-ipam/ciliumnode-0"}}
				f.node.Status.IPAM.Used = map[string]planner.Entry{ip(1).String(): {Owner: "router"}}
				f.capacity, f.unrestorable[ip(1)] = 0, true
			},
			func(f *fixture) { f.capacity, f.unrestorable[ip(1)] = 100, false },
			"AddressNotHeld",
		},
		"bridge before API server": {
			func(f *fixture) { f.apiErr = errors.New("refused") }, func(f *fixture) { f.apiErr = nil }, "APIServerUnavailable",
		},
		"bridge before its rights": {
			func(f *fixture) { f.dryRunErr, f.writeErr = patchForbidden(), patchForbidden() }, func(f *fixture) { f.dryRunErr, f.writeErr = nil, nil }, "NotPermitted",
		},
		"bridge before CiliumNode or CRD": {
			func(f *fixture) { f.node = nil }, func(f *fixture) { f.create("uid-2") }, "CiliumNodeMissing",
		},
		"agent in another mode": {
			func(f *fixture) { f.node.Spec.IPAM.PodCIDRs = []string{"10.1.0.0/24"} }, func(f *fixture) { f.node.Spec.IPAM.PodCIDRs = nil }, "WrongIPAMMode",
		},
	} {
		for _, end := range []time.Duration{time.Second, 33 * time.Second, 54 * time.Second, time.Hour} {
			t.Run(name+", "+end.String(), func(t *testing.T) {
				f := newFixture()
				tt.begin(f)
				runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
					advance(end)
					// The end is not always a change of the CiliumNode, which would wake the bridge.
					f.mu.Lock()
					tt.end(f)
					f.mu.Unlock()
					advance(10 * time.Minute)
					f.wantSomePublished(t)
					if end < time.Minute {
						f.wantEvents(t)
					} else {
						f.wantEvent(t, tt.reason, true)
					}
					if got := f.eventReasons(); len(got) != len(slices.Compact(slices.Clone(got))) {
						t.Errorf("the Events are %v; want each once", got)
					}
				})
			})
		}
	}
}

// Each part is late by less than a minute, all together by more.
func TestLateInTurns(t *testing.T) {
	f := newFixture()
	f.daemonErr, f.node = errAway(), nil
	runController(t, f, smallSettings(), func(t *testing.T, _ *metrics) {
		advance(50 * time.Second)
		f.update(func() { f.create("uid-2") })
		advance(40 * time.Second)
		f.mu.Lock()
		f.daemonErr = nil
		f.mu.Unlock()
		advance(10 * time.Minute)
		f.wantEvents(t)
		f.wantSmallPool(t)
	})
}
