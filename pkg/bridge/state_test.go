package bridge

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

func TestOnlyTimeThatAnAddressIsSeenUnusedCountsAsRest(t *testing.T) {
	fenced := map[netip.Addr]planner.Entry{ip(1): planner.EntryOf(1, true)}
	answered := map[netip.Addr]planner.Handshake{planner.Probe: planner.DoNotRelease}
	between := map[string]planner.View{
		"it was used":                {Pool: fenced, Handshakes: answered, Used: map[netip.Addr]planner.Entry{ip(1): {}}},
		"it could be handed out":     {Pool: map[netip.Addr]planner.Entry{ip(1): planner.EntryOf(1, false)}, Handshakes: answered},
		"the probe was not answered": {Pool: fenced, Handshakes: map[netip.Addr]planner.Handshake{planner.Probe: planner.Marked}},
		"it was not in the pool":     {Handshakes: answered},
		"the agent was never probed": {Pool: fenced},
	}
	for name, then := range between {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, v := newState(time.Minute), planner.View{Pool: fenced, Handshakes: answered}
				m.observe("uid", v)
				time.Sleep(40 * time.Second)
				m.observe("uid", then)
				m.observe("uid", v)
				time.Sleep(40 * time.Second)
				m.observe("uid", v)
				if m.addTo(&v); v.Drained[ip(1)] {
					t.Error("40 s after that it counts as rested for a minute")
				}
				time.Sleep(20 * time.Second)
				if m.addTo(&v); !v.Drained[ip(1)] {
					t.Error("after a minute it does not count as rested")
				}
			})
		})
	}
}
