package nodehistory

import (
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/lostnodes"
)

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later = noon.Add(10 * time.Minute)
)

func TestObserve(t *testing.T) {
	for name, c := range map[string]struct {
		before History
		nodes  []string
		slots  map[string]int
		want   History
	}{
		"first run":                 {nil, []string{"a", "b"}, map[string]int{"a": 8}, History{"a": {Slots: 8}, "b": {}}},
		"grown":                     {History{"a": {Slots: 8}}, []string{"a"}, map[string]int{"a": 12}, History{"a": {Slots: 12}}},
		"shrunk":                    {History{"a": {Slots: 12}}, []string{"a"}, map[string]int{"a": 8}, History{"a": {Slots: 12}}},
		"gone":                      {History{"a": {Slots: 8}}, nil, nil, History{"a": {8, later}}},
		"gone for longer":           {History{"a": {8, noon}}, nil, nil, History{"a": {8, noon}}},
		"come back":                 {History{"a": {8, noon}}, []string{"a"}, nil, History{"a": {Slots: 8}}},
		"CiliumNode outlives":       {History{"a": {Slots: 8}}, nil, map[string]int{"a": 9}, History{"a": {9, later}}},
		"CiliumNode without a Node": {nil, nil, map[string]int{"a": 9}, History{"a": {9, later}}},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := map[string]bool{}
			for _, n := range c.nodes {
				nodes[n] = true
			}
			before := maps.Clone(c.before)
			if got := c.before.Observe(nodes, c.slots, later); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v; want %v", got, c.want)
			}
			if !maps.Equal(before, c.before) {
				t.Errorf("the history before has changed to %v", c.before)
			}
		})
	}
}

func TestLost(t *testing.T) {
	h := History{
		"here": {Slots: 8}, "young": {8, later.Add(-29 * time.Minute)},
		"old": {8, later.Add(-2 * time.Hour)}, "older": {0, later.Add(-3 * time.Hour)}, "other": {3, later.Add(-30 * time.Minute)},
	}
	s := Selection{Grace: 30 * time.Minute, ExtraSlots: 16}
	want := []lostnodes.Node{
		{Name: "older", AbsentSince: h["older"].AbsentSince, Owners: []string{"router", "ciliumnode-0..15"}},
		{Name: "old", AbsentSince: h["old"].AbsentSince, Owners: []string{"router", "ciliumnode-0..23"}},
		{Name: "other", AbsentSince: h["other"].AbsentSince, Owners: []string{"router", "ciliumnode-0..18"}},
	}
	if got := h.Lost(s, []string{"router"}, later); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
	s.ExtraSlots = 0
	got := h.Lost(s, []string{"router"}, later)
	if len(got) != 3 || fmt.Sprint(got[0].Owners, got[2]) != fmt.Sprint([]string{"router"}, lostnodes.Node{Name: "other", AbsentSince: h["other"].AbsentSince, Owners: []string{"router", "ciliumnode-0..2"}}) {
		t.Errorf("got %v", got)
	}
	for _, n := range got {
		if _, err := lostnodes.Expand(n.Owners); err != nil {
			t.Error(err)
		}
	}
}

func TestForget(t *testing.T) {
	h := History{"gone": {8, noon}, "back": {Slots: 8}, "waits": {8, noon}}
	if got, want := h.Forget([]string{"gone", "back", "unknown"}), (History{"back": {Slots: 8}, "waits": {8, noon}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}
