package planner

import "testing"

func TestSlotNames(t *testing.T) {
	for text, want := range map[string]int{"ciliumnode-0": 0, "ciliumnode-17": 17, "ciliumnode-01": -1, "ciliumnode--1": -1, "ciliumnode-": -1, "router": -1, "ciliumnode-1x": -1, "ciliumnode-+1": -1} {
		got, ok := ParseOwner(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("owner %q: got slot %d, want %d", text, got, want)
		}
	}
	for n := range 20 {
		for _, fenced := range []bool{false, true} {
			e := EntryOf(n, fenced)
			if got, ok := e.Slot(); !ok || got != n || e.Cordoned() != fenced {
				t.Errorf("entry %+v: got slot %d, %t, fenced %t", e, got, ok, e.Cordoned())
			}
		}
		if got, ok := ParseOwner(Owner(n)); !ok || got != n {
			t.Errorf("owner %s: got slot %d, %t", Owner(n), got, ok)
		}
	}
	for _, e := range []Entry{{}, {Resource: "eth0"}, {Resource: "delegated-ipam/x"}, {Owner: cordonOwner}} {
		if n, ok := e.Slot(); ok {
			t.Errorf("%+v is slot %d, want none", e, n)
		}
	}
}
