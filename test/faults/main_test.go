// Package faults breaks disks, plugins and processes under the real binary and
// asks the oracle afterwards (docs/reliability.md).
package faults

import (
	"os"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// cannot skips a test for want of something that the machine does not have. In
// CI that is an error: "go test" would call it a success.
func cannot(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("in CI this must not be missing: "+format, args...)
	}
	t.Skipf(format, args...)
}

// nodeWith returns a node with a dual-stack network of the real host-local.
func nodeWith(t testing.TB) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-cilium", harness.DualStack())
	return n
}
