package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// An agent that repeats ADD at each start, as CFP-45607 describes, does not start twice over the real
// host-local (docs/design/upstream.md).
func TestSecondStart(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	out, err := exec.Command("../upstream/second-start.sh", filepath.Join(n.BinDir, "host-local")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
