package delegate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// runAsProcessOne runs this subtest once more, as process 1 of a process
// namespace of its own: there /proc/1 is its own. Here process 1 is another
// user's, or of a container that may not be looked into.
func runAsProcessOne(t *testing.T) {
	t.Helper()
	if os.Getpid() == 1 {
		t.Fatal("process 1 does not find its own namespace under /proc/1; want it there")
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		harness.Skipf(t, "the test cannot be run as process 1: %v; install util-linux", err)
	}
	if _, err := asProcessOne(unshare, "true"); err != nil {
		lackRight(t, "the test cannot be run as process 1", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	only := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	out, err := asProcessOne(unshare, self, "-test.v", "-test.count=1", "-test.run="+only)
	// One that was skipped, or not found, has shown nothing.
	if err != nil || !strings.Contains(out, "--- PASS: "+t.Name()+" (") {
		t.Errorf("as process 1 it did not pass: %v\n%s", err, out)
	}
}

// asProcessOne runs a command as process 1 and returns all that it printed. The
// error is fs.ErrPermission where no process namespace may be made.
func asProcessOne(unshare string, command ...string) (string, error) {
	cmd := exec.Command(unshare, append([]string{"--pid", "--fork", "--mount-proc", "--kill-child"}, command...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil && strings.HasPrefix(text, "unshare: ") && strings.Contains(text, "Operation not permitted") {
		return text, fmt.Errorf("%w: %s", fs.ErrPermission, text)
	}
	return text, err
}

// lackRight ends a test that was refused what it needs. Where the kernel refuses
// it to root itself, as in a container with few capabilities, it cannot be had,
// so that the test is skipped in CI, too.
func lackRight(t *testing.T, what string, err error) {
	t.Helper()
	if os.Geteuid() == 0 && errors.Is(err, fs.ErrPermission) {
		t.Skipf("%s, not even by root: %v", what, err)
	}
	harness.Skipf(t, "%s: %v", what, err)
}
