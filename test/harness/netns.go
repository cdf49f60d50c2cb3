package harness

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// NewNetNS creates a network namespace and returns its name, for IP and "ip netns exec";
// NetNSPath returns its path. It is deleted with the test. Without the right to create
// one, the test is skipped.
func NewNetNS(t testing.TB) string {
	t.Helper()
	// Packages are tested concurrently: the name of a new folder is unique on the machine.
	name := filepath.Base(tempDir(t))
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		Skipf(t, "network namespaces cannot be created: %v: %s", err, out)
	}
	t.Cleanup(func() { IP(t, "netns", "del", name) })
	return name
}

// NetNSPath returns the path of a network namespace that NewNetNS has created.
func NetNSPath(name string) string { return filepath.Join("/run/netns", name) }

// IP runs ip(8), which must succeed.
func IP(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
