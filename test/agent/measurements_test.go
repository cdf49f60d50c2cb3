package agent

import (
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// record adds a measurement to the table that run.sh prints at the end.
func (tb *testbed) record(t *testing.T, what string, value any) {
	t.Helper()
	cluster.Record(t, filepath.Join(tb.built, "measurements.md"), what, value)
}
