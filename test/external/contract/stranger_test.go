package contract

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// stranger is a user that is neither root nor ours, who both may always call.
const stranger = 65534

// asStranger returns a client whose every connection reaches the node's socket
// as another user's, so that it works for a client that dials by itself too.
func asStranger(t *testing.T, n *harness.Node) harness.Client {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("only root can call as another user, and in CI that must not be left out")
		}
		t.Skip("skipped: only root can call as another user")
	}
	// Other users must be able to reach the socket, or the kernel refuses first.
	if err := os.Chmod(n.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.Dir, "stranger.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go forward(listener, n.Socket)
	t.Cleanup(func() { listener.Close() })
	return harness.Client{Socket: path}
}

// forward passes connections on until the listener is closed. Those that a
// client keeps open end with the sidecar.
func forward(listener net.Listener, socket string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		to, err := dialAsStranger(socket)
		if err != nil {
			from.Close()
			continue
		}
		go passOn(to, from)
		go passOn(from, to)
	}
}

// passOn copies one direction; when it ends, so does the connection.
func passOn(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
	from.Close()
}

// dialAsStranger connects from a thread that is another user: the kernel notes
// the peer's credentials at connect(2), and they belong to a thread. The thread
// is never unlocked, so that it ends with its goroutine.
func dialAsStranger(socket string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		same := ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, stranger, same); errno != 0 {
			done <- result{err: errno}
			return
		}
		conn, err := net.Dial("unix", socket)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}
