package harness

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// User is the peer of a connection as the kernel records it (unix(7), SO_PEERCRED and
// SO_PEERGROUPS).
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
	conn, err := c.DialAs(u)
	Must(t, err)
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, http.NoBody)
	Must(t, err)
	resp, err := transport.RoundTrip(req)
	Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	Must(t, err)
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: body}
}

// DialAs connects to the socket as another user, on a thread that terminates afterwards. Only root
// can do that.
func (c Client) DialAs(u User) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Without a call of UnlockOSThread the runtime discards the thread.
		runtime.LockOSThread()
		if err = setThreadUser(u); err == nil {
			conn, err = net.Dial("unix", c.Socket)
		}
	}()
	<-done
	return conn, err
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
