package unixsock

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// shortTempDir returns a new directory with a short path, because the path of a socket is limited.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "unixsock")
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, os.RemoveAll(dir)) })
	return dir
}

// listenAt is Listen without a log; its mode is 0660 if o has none.
func listenAt(o Options) (net.Listener, error) {
	o.Mode = cmp.Or(o.Mode, 0o660)
	return Listen(o, Callers{}, logging.NewRepeated(logging.Discard(), time.Hour))
}

func listenOn(t *testing.T, o Options) net.Listener {
	t.Helper()
	l, err := listenAt(o)
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, l.Close()) })
	return l
}

// refused returns the error with which Listen refuses a path.
func refused(t *testing.T, path string) error {
	t.Helper()
	l, err := listenAt(Options{Path: path})
	if err == nil {
		_ = l.Close()
		t.Fatalf("Listen on %q succeeded", path)
	}
	return err
}

// wantReachable fails the test unless a connection to the path arrives at the listener.
func wantReachable(t *testing.T, l net.Listener, path string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	check.Must(t, err)
	defer conn.Close()
	got, err := l.Accept()
	check.Must(t, err)
	check.Must(t, got.Close())
}

// leaveStaleSocket creates a socket on which no process listens, as a killed process leaves it.
func leaveStaleSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	check.Must(t, err)
	l.SetUnlinkOnClose(false)
	check.Must(t, l.Close())
}

// serve runs Server with a handler that refuses others than callers and sends each peer to reached.
func serve(t *testing.T, callers Callers) (path string, reached chan Peer) {
	t.Helper()
	path = filepath.Join(shortTempDir(t), "s.sock")
	l, err := listenAt(Options{Path: path, Mode: 0o666})
	check.Must(t, err)
	check.Must(t, os.Chmod(filepath.Dir(path), 0o755))
	reached = make(chan Peer, 10)
	serveOn(t, Server(authorize(callers, reached), logging.Discard()), l)
	return path, reached
}

func authorize(callers Callers, reached chan<- Peer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, known := PeerFrom(r.Context())
		if !known || !callers.Allow(peer) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		reached <- peer
	})
}

// serveOn runs a server on a listener until the test ends, or until stop is called.
func serveOn(t *testing.T, s *http.Server, l net.Listener) (stop func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	stop = sync.OnceFunc(func() {
		check.Must(t, s.Close())
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// dialAs connects with the credentials of a user; groups are only for another one than our own.
func dialAs(t *testing.T, path string, uid int, groups ...uint32) (conn net.Conn, err error) {
	t.Helper()
	if uid == os.Geteuid() {
		return net.Dial("unix", path)
	}
	<-asUser(t, uid, groups, func() { conn, err = net.Dial("unix", path) })
	return conn, err
}

// asUser starts a function with the credentials of another user, and closes done after its end. They
// belong to a thread, which terminates with its goroutine because it is never unlocked.
func asUser(t *testing.T, uid int, groups []uint32, f func()) (done chan struct{}) {
	t.Helper()
	check.Root(t)
	done = make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		// The functions of package syscall would change all threads.
		_, _, e1 := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
		_, _, e2 := syscall.RawSyscall(unix.SYS_SETRESGID, uintptr(uid), uintptr(uid), uintptr(uid))
		_, _, e3 := syscall.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
		if e1 != 0 || e2 != 0 || e3 != 0 {
			t.Errorf("user %d: %v, %v, %v", uid, e1, e2, e3)
			return
		}
		f()
	}()
	return done
}

// acceptFrom returns the server's end of a connection of dial.
func acceptFrom(t *testing.T, dial func(path string) (net.Conn, error)) net.Conn {
	t.Helper()
	path := filepath.Join(shortTempDir(t), "s.sock")
	l := listenOn(t, Options{Path: path, Mode: 0o666})
	check.Must(t, os.Chmod(filepath.Dir(path), 0o755))
	client, err := dial(path)
	check.Must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	server, err := l.Accept()
	check.Must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return server
}
