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
	suspended := map[netip.Addr]planner.Entry{ip(1): planner.EntryOf(1, true)}
	pinged := map[netip.Addr]planner.Handshake{planner.Ping: planner.DoNotRelease}
	for name, interruption := range map[string]planner.Observed{
		"used":              {Pool: suspended, Handshakes: pinged, Used: map[netip.Addr]planner.Entry{ip(1): {}}},
		"not suspended":     {Pool: map[netip.Addr]planner.Entry{ip(1): planner.EntryOf(1, false)}, Handshakes: pinged},
		"ping not answered": {Pool: suspended, Handshakes: map[netip.Addr]planner.Handshake{planner.Ping: planner.MarkedForRelease}},
		"not published":     {Handshakes: pinged},
		"not pinged":        {Pool: suspended},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, v := newState(2*time.Minute), planner.Observed{Pool: suspended, Handshakes: pinged}
				s.observe("uid", v)
				time.Sleep(40 * time.Second)
				s.observe("uid", interruption)
				s.observe("uid", v)
				time.Sleep(40 * time.Second)
				s.observe("uid", v)
				if s.remembered(v, smallSettings()).Drained[ip(1)] {
					t.Error("40 s after the interruption it counts as drained for a minute")
				}
				time.Sleep(20 * time.Second)
				if !s.remembered(v, smallSettings()).Drained[ip(1)] {
					t.Error("after a minute it does not count as drained")
				}
			})
		})
	}
}
