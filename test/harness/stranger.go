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

// User is who a request comes from, as the kernel notes it (unix(7), SO_PEERCRED
// and SO_PEERGROUPS).
type User struct {
	UID, GID int
	Groups   []uint32
}

// DoAs is Do in the name of another user. Only root can do that; the test lacks it else.
func (c Client) DoAs(t testing.TB, u User, method, path string) Answer {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can call in the name of another user")
	}
	c.answers.sent(questionOf(method, path, nil))
	conn, err := c.dialAs(u)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
}

// dialAs connects on a thread that becomes the other user and ends with that.
func (c Client) dialAs(u User) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked, so that the thread is thrown away.
		runtime.LockOSThread()
		if err = become(u); err == nil {
			conn, err = net.Dial("unix", c.Socket)
		}
	}()
	<-done
	return conn, err
}

// become changes the user of this thread alone: package syscall's own functions
// change every thread.
func become(u User) error {
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
