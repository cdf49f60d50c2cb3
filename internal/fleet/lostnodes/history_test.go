package lostnodes

import (
	"maps"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later = noon.Add(10 * time.Minute)
)

// entry returns the record of a node "a" with the UID "a-1", absent since and at these times.
func entry(slots int, absent ...time.Time) Entry {
	e := Entry{UID: "a-1", Slots: slots}
	if len(absent) > 0 {
		e.AbsentSince, e.AbsentAt = absent[0], absent[len(absent)-1]
	}
	return e
}

func TestObserve(t *testing.T) {
	const maxGap = 10 * time.Minute
	long := later.Add(-maxGap - time.Second)
	for name, c := range map[string]struct {
		before History
		nodes  map[string]string
		pools  map[string]NodePool
		want   History
	}{
		"first run":           {nil, map[string]string{"a": "a-1", "b": "b-1"}, map[string]NodePool{"a": {Slots: 8}}, History{"a": entry(8), "b": {UID: "b-1"}}},
		"grown":               {History{"a": entry(8)}, map[string]string{"a": "a-1"}, map[string]NodePool{"a": {Slots: 12}}, History{"a": entry(12)}},
		"shrunk":              {History{"a": entry(12)}, map[string]string{"a": "a-1"}, map[string]NodePool{"a": {Slots: 8}}, History{"a": entry(12)}},
		"gone":                {History{"a": entry(8)}, nil, nil, History{"a": entry(8, later)}},
		"gone for longer":     {History{"a": entry(8, noon)}, nil, nil, History{"a": entry(8, noon, later)}},
		"a gap":               {History{"a": entry(8, noon, long)}, nil, nil, History{"a": entry(8, later)}},
		"the clock went back": {History{"a": entry(8, noon, later.Add(time.Second))}, nil, nil, History{"a": entry(8, later)}},
		"come back":           {History{"a": entry(8, noon)}, map[string]string{"a": "a-1"}, nil, History{"a": entry(8)}},
		"created again":       {History{"a": entry(8, noon)}, map[string]string{"a": "a-2"}, nil, History{"a": {UID: "a-2", Slots: 8}}},
		"its CiliumNode is not yet removed": {
			History{"a": entry(8, noon)}, nil, map[string]NodePool{"a": {9, "a-1"}}, History{"a": entry(9, noon, later)},
		},
		"another Node had the name in between":   {History{"a": entry(8, noon)}, nil, map[string]NodePool{"a": {9, "a-2"}}, History{"a": entry(9)}},
		"a machine without a Node has the name":  {History{"a": entry(8, noon)}, nil, map[string]NodePool{"a": {9, ""}}, History{"a": entry(9)}},
		"CiliumNode that never had a Node":       {nil, nil, map[string]NodePool{"a": {Slots: 9}}, History{}},
		"recorded without a Node's UID":          {History{"a": {Slots: 8, AbsentSince: noon}}, nil, nil, History{}},
		"recorded without a UID, and has a Node": {History{"a": {Slots: 8}}, map[string]string{"a": "a-1"}, nil, History{"a": entry(8)}},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(c.before)
			check.Equal(t, "history", c.before.Observe(c.nodes, c.pools, maxGap, later), c.want)
			check.Equal(t, "history before", before, c.before)
		})
	}
}

func TestLost(t *testing.T) {
	h := History{
		"here": entry(8), "young": entry(8, later.Add(-29*time.Minute)),
		"old": entry(8, later.Add(-2*time.Hour)), "older": entry(0, later.Add(-3*time.Hour)), "other": entry(3, later.Add(-30*time.Minute)),
	}
	check.Equal(t, "lost nodes", h.lost(30*time.Minute, later), []string{"older", "old", "other"})
}

func TestSlotOwner(t *testing.T) {
	check.Equal(t, "prefix of owners", planner.OwnerPrefix, slotOwner)
}

func TestForget(t *testing.T) {
	h := History{"gone": entry(8, noon), "back": entry(8), "waits": entry(8, noon)}
	check.Equal(t, "history", h.Forget([]string{"gone", "back", "unknown"}), (History{"back": entry(8), "waits": entry(8, noon)}))
}
