package failpoint_test

import (
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)

func TestAll(t *testing.T) {
	all := failpoint.All()
	slices.Sort(all)
	if once := slices.Compact(slices.Clone(all)); len(once) != len(all) || len(all) == 0 {
		t.Errorf("the list of points is %v; want each once", all)
	}
}
