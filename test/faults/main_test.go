// Package faults injects faults of disks, plugins and processes into the real binary and then
// checks the state with the oracle (docs/design/reliability.md).
package faults

import (
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// nodeWith returns a node with a dual-stack network of the real host-local.
func nodeWith(t testing.TB) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-cilium", harness.DualStack())
	return n
}

// wantHeld wants an allocate of an owner to return the addresses that it holds.
func wantHeld(t *testing.T, s *harness.Sidecar, owner string, want []string) {
	t.Helper()
	if got := s.AllocateFor(t, owner); !slices.Equal(got, want) {
		t.Errorf("%s has %q; want %q as before", owner, got, want)
	}
}

// wantNotGiven wants an owner to get none of the addresses of another one.
func wantNotGiven(t *testing.T, s *harness.Sidecar, owner string, held []string) {
	t.Helper()
	for _, ip := range s.AllocateFor(t, owner) {
		if slices.Contains(held, ip) {
			t.Errorf("%s is held and was allocated to %s", ip, owner)
		}
	}
}

// wantNoQuarantine wants health to report no quarantined record.
func wantNoQuarantine(t *testing.T, s *harness.Sidecar) {
	t.Helper()
	if q := s.Health(t).DelegatedIPAM.Quarantined; len(q) > 0 {
		t.Errorf("health has the quarantined records %+v; want none", q)
	}
}
