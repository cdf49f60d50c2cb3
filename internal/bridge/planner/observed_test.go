package planner

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The agent would allocate a suspended entry to a pod of that name.
func TestSuspendedOwnerIsNoPod(t *testing.T) {
	namespace, name, ok := strings.Cut(EntryOf(1, true).Owner, "/")
	if ok && len(validation.IsDNS1123Label(namespace))+len(validation.IsDNS1123Subdomain(name)) == 0 {
		t.Errorf("a suspended entry has the owner %q, which a pod can have", EntryOf(1, true).Owner)
	}
}

func TestSlotNames(t *testing.T) {
	for text, want := range map[string]int{"ciliumnode-0": 0, "ciliumnode-17": 17, "ciliumnode-01": -1, "ciliumnode--1": -1, "ciliumnode-": -1, "router": -1, "ciliumnode-1x": -1, "ciliumnode-+1": -1} {
		if got, ok := ParseOwner(text); ok != (want >= 0) || ok && got != want {
			t.Errorf("owner %q: got slot %d, %t, want %d", text, got, ok, want)
		}
	}
	for n := range 20 {
		for _, fenced := range []bool{false, true} {
			e := EntryOf(n, fenced)
			if got, ok := e.Slot(); !ok || got != n || e.Suspended() != fenced {
				t.Errorf("entry %+v: got slot %d, %t, fenced %t", e, got, ok, e.Suspended())
			}
		}
		if got, ok := ParseOwner(Owner(n)); !ok || got != n {
			t.Errorf("owner %s: got slot %d, %t", Owner(n), got, ok)
		}
	}
	for _, e := range []Entry{{}, {Resource: "eth0"}, {Resource: "delegated-ipam/x"}, {Owner: suspendedOwner}} {
		if n, ok := e.Slot(); ok {
			t.Errorf("%+v is slot %d, want none", e, n)
		}
	}
}

// Each phase has a step for each demand.
func TestTable(t *testing.T) {
	used := map[step]bool{}
	for phase, row := range table {
		for _, d := range []Demand{Keep, Idle, Drop, Stay} {
			used[row[d]] = true
			if steps[row[d]] == nil {
				t.Errorf("%s, %s: no step %q", phase, d, row[d])
			}
		}
	}
	for s := range steps {
		if !used[s] {
			t.Errorf("no phase has the step %s", s)
		}
	}
	if phases := slices.Sorted(maps.Keys(table)); len(phases) != len(order)+1 {
		t.Errorf("the table has %v, and the order %v and resumed", phases, order)
	}
}
