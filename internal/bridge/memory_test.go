package bridge

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
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

// Another attempt does not end the problem of a lost address that a pod has. The message covers published and
// unpublished addresses.
func TestRestoreOfPod(t *testing.T) {
	st := newState(drainDelay)
	for n := 1; n <= 2; n++ {
		st.refusals[planner.Restore].add(ip(n), fail(reasonPluginFailed, errors.New("refused")))
	}
	s := snapshot{
		observed: planner.Observed{
			PodIPs: map[netip.Addr]bool{ip(1): true, ip(2): true},
			Pool:   map[netip.Addr]planner.Entry{ip(2): planner.EntryOf(2, false)},
		},
		plan: planner.Plan{Restore: []planner.Action{{IPs: []netip.Addr{ip(1)}}, {IPs: []netip.Addr{ip(2)}}}},
	}
	got := s.problems(st)[planner.AddressNotHeld]
	check.Equal(t, "subject", got.Subject, ip(1).String()+","+ip(2).String())
	check.Contains(t, got.Message, "Those in spec.ipam.pool stay there", "the others are not published")
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
