package failpoint_test

import (
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)

func TestPlanRoundTrip(t *testing.T) {
	for _, want := range []failpoint.Plan{{}, {Point: failpoint.WriteRenamed, Visit: 2}} {
		got, err := failpoint.ParsePlan(want.String())
		if err != nil || got != want {
			t.Errorf("%q is parsed as %v, %v; want %v", want.String(), got, err, want)
		}
	}
}

func TestParsePlanErrors(t *testing.T) {
	for _, text := range []string{"write.renamed", "write.renamed:", "write.renamed:0", "write.renamed:x", ":1"} {
		if plan, err := failpoint.ParsePlan(text); err == nil {
			t.Errorf("%q is parsed as %v; want an error", text, plan)
		}
	}
}

func TestAll(t *testing.T) {
	all := failpoint.All()
	slices.Sort(all)
	if once := slices.Compact(slices.Clone(all)); len(once) != len(all) || len(all) == 0 {
		t.Errorf("the list of points is %v; want each once", all)
	}
}
