package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// NewNetNS makes a network namespace and returns its name for IP and for "ip
// netns exec"; NetNSPath is its path. It goes with the test. Where none can be
// made the test lacks it.
func NewNetNS(t testing.TB) string {
	t.Helper()
	// Packages are tested at the same time, so the name is one that no other
	// process has: that of a folder.
	name := filepath.Base(tempDir(t))
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		Lack(t, "network namespaces cannot be made here: %v: %s", err, out)
	}
	t.Cleanup(func() { IP(t, "netns", "del", name) })
	return name
}

// NetNSPath is the path of a network namespace that NewNetNS has made.
func NetNSPath(name string) string { return filepath.Join("/run/netns", name) }

// IP runs ip(8), which must succeed.
func IP(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Lack ends a test that needs what the machine does not have, and says what
// that is. It is skipped, but for root in CI (CI=true) that is an error: there
// everything is to be had, and a test that nobody runs shows nothing.
func Lack(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// tempDir is t.TempDir with a short path: a test's name would make that of a
// socket in it too long.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dip-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
