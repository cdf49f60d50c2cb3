package planner

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// Each phase has a step for each demand, and the page has the same table.
func TestTable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/design/bridge.md")
	if err != nil {
		t.Fatal(err)
	}
	used := map[step]bool{}
	for phase, row := range table {
		line := fmt.Sprintf("| `%s` |", phase)
		for _, d := range []Demand{Keep, Idle, Drop, Stay} {
			used[row[d]] = true
			if steps[row[d]] == nil {
				t.Errorf("%s, %s: no step %q", phase, d, row[d])
			}
			line += fmt.Sprintf(" %s |", row[d])
		}
		if !strings.Contains(string(page), line) {
			t.Errorf("docs/design/bridge.md does not have the row %s", line)
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
