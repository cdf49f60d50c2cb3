package planner

import (
	"maps"
	"slices"
	"testing"
)

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
