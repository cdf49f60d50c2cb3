package bridge

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// The message covers published and unpublished addresses.
func TestDescribeNotHeld(t *testing.T) {
	text := describe(planner.AddressNotHeld, []string{"10.0.0.2"})
	for _, want := range []string{"Those in spec.ipam.pool stay there", "the others are not published"} {
		if !strings.Contains(text, want) {
			t.Errorf("the message is %q; want %q in it", text, want)
		}
	}
}

// Another attempt does not end the problem of a lost address that a pod has. An
// unused, published one is withdrawn instead.
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
	if got := s.problems(st)[planner.AddressNotHeld].Subject; got != ip(1).String() {
		t.Errorf("the problem is about %q; want %s", got, ip(1))
	}
}
