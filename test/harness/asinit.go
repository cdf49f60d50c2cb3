package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// RunAsInit runs the calling test, or subtest, once more as process 1 of a new PID namespace, where
// os.Getpid() is 1. Where that is not possible the test is skipped (LackRight).
func RunAsInit(t *testing.T) {
	t.Helper()
	if os.Getpid() == 1 {
		t.Fatal("the test is run as process 1 already")
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		Skipf(t, "the test cannot be run as process 1: %v; install util-linux", err)
	}
	if _, err := asInit(unshare, "true"); err != nil {
		LackRight(t, "the test cannot be run as process 1", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	only := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	out, err := asInit(unshare, self, "-test.v", "-test.count=1", "-test.run="+only)
	// One that was skipped, or not found, proves nothing.
	if err != nil || !strings.Contains(out, "--- PASS: "+t.Name()+" (") {
		t.Errorf("as process 1 it did not pass: %v\n%s", err, out)
	}
}

// asInit runs a command as process 1 and returns its output. The error is fs.ErrPermission where no
// PID namespace may be created.
func asInit(unshare string, command ...string) (string, error) {
	cmd := exec.Command(unshare, append([]string{"--pid", "--fork", "--mount-proc", "--kill-child"}, command...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil && strings.HasPrefix(text, "unshare: ") && strings.Contains(text, "Operation not permitted") {
		return text, fmt.Errorf("%w: %s", fs.ErrPermission, text)
	}
	return text, err
}

// LackRight ends a test that was refused a right. Where the kernel refuses it even to root, as in a
// container with few capabilities, the test is skipped in CI, too.
func LackRight(t testing.TB, what string, err error) {
	t.Helper()
	if os.Geteuid() == 0 && errors.Is(err, fs.ErrPermission) {
		t.Skipf("%s, not even by root: %v", what, err)
	}
	Skipf(t, "%s: %v", what, err)
}
