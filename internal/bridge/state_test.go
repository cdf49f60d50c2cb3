package bridge

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// A drain is one uninterrupted period.
func TestDrainInterrupted(t *testing.T) {
	cordoned := map[netip.Addr]planner.Entry{ip(1): planner.EntryOf(1, true)}
	probed := map[netip.Addr]planner.Handshake{planner.Probe: planner.DoNotRelease}
	for name, interruption := range map[string]planner.View{
		"used":               {Pool: cordoned, Handshakes: probed, Used: map[netip.Addr]planner.Entry{ip(1): {}}},
		"not cordoned":       {Pool: map[netip.Addr]planner.Entry{ip(1): planner.EntryOf(1, false)}, Handshakes: probed},
		"probe not answered": {Pool: cordoned, Handshakes: map[netip.Addr]planner.Handshake{planner.Probe: planner.Marked}},
		"not published":      {Handshakes: probed},
		"not probed":         {Pool: cordoned},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, v := newState(2*time.Minute), planner.View{Pool: cordoned, Handshakes: probed}
				s.observe("uid", v)
				time.Sleep(40 * time.Second)
				s.observe("uid", interruption)
				s.observe("uid", v)
				time.Sleep(40 * time.Second)
				s.observe("uid", v)
				if s.addTo(&v, smallSettings(), nodePods{}); v.Drained[ip(1)] {
					t.Error("40 s after the interruption it counts as drained for a minute")
				}
				time.Sleep(20 * time.Second)
				if s.addTo(&v, smallSettings(), nodePods{}); !v.Drained[ip(1)] {
					t.Error("after a minute it does not count as drained")
				}
			})
		})
	}
}
