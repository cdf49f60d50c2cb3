package e2e

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// A FIFO before the configuration would block the start.
//
//evidence:operate/security a FIFO, device, or 5 GiB as option, profile or CNI configuration
func TestConfIsPipe(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	check.Must(t, unix.Mkfifo(filepath.Join(n.ConfDir, "00-first.conflist"), 0o600))
	n.Start(t).AllocateFor(t, "router")
}
