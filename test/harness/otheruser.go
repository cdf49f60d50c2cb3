package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// User is the peer of a connection as the kernel records it (unix(7), SO_PEERCRED and SO_PEERGROUPS).
type User struct {
	UID, GID int
	Groups   []uint32
}

// DoAs is Do as another user. Without root the test is skipped.
func (c Client) DoAs(t testing.TB, u User, method, path string) Response {
	t.Helper()
	if os.Geteuid() != 0 {
		Skipf(t, "only root can connect as another user")
	}
	c.history.requestSent(parseRequest(method, path, nil))
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, http.NoBody)
	check.Must(t, err)
	response, err := send(req, func() (net.Conn, error) { return c.DialAs(u) })
	check.Must(t, err)
	return response
}

// DialAs connects to the socket as another user. Only root can do that.
func (c Client) DialAs(u User) (conn net.Conn, err error) {
	userErr := RunAs(u, func() { conn, err = net.Dial("unix", c.Socket) })
	return conn, errors.Join(userErr, err)
}

// RunAs runs a function as another user, on a thread that terminates afterwards. Only root can do
// that. The error is why the function was not run.
func RunAs(u User, f func()) error {
	done := make(chan error)
	go func() {
		// Without a call of UnlockOSThread the runtime discards the thread.
		runtime.LockOSThread()
		err := setThreadUser(u)
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

// setThreadUser changes the user of this thread only; the functions of package syscall
// change every thread.
func setThreadUser(u User) error {
	_, _, forGroups := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), uintptr(unsafe.Pointer(unsafe.SliceData(u.Groups))), 0)
	_, _, forGID := syscall.RawSyscall(unix.SYS_SETRESGID, uintptr(u.GID), uintptr(u.GID), uintptr(u.GID))
	_, _, forUID := syscall.RawSyscall(unix.SYS_SETRESUID, uintptr(u.UID), uintptr(u.UID), uintptr(u.UID))
	for _, errno := range []syscall.Errno{forGroups, forGID, forUID} {
		if errno != 0 {
			return errno
		}
	}
	return nil
}

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
	check.Must(t, err)
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
