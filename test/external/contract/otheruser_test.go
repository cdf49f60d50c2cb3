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

// otherUID is neither root nor our own user, which may always call.
const otherUID = 65534

// proxyAsOtherUser returns a client of a proxy that connects to the node's socket as another user.
// Clients with a separate dial function can use its socket, too.
func proxyAsOtherUser(t *testing.T, n *harness.Node) harness.Client {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("only root can connect as another user; CI must run this test as root")
		}
		t.Skip("only root can connect as another user")
	}
	// Without access to the directory the kernel would reject the connection.
	if err := os.Chmod(n.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.Dir, "other.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go forward(listener, n.Socket)
	t.Cleanup(func() { listener.Close() })
	return harness.Client{Socket: path}
}

// forward forwards connections until the listener is closed. Connections that a client keeps open
// end with the sidecar.
func forward(listener net.Listener, socket string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		to, err := dialAsOtherUser(socket)
		if err != nil {
			from.Close()
			continue
		}
		go copyAndClose(to, from)
		go copyAndClose(from, to)
	}
}

// copyAndClose copies one direction and then closes both connections.
func copyAndClose(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
	from.Close()
}

// dialAsOtherUser connects on a thread with another user ID: the credentials at connect(2) are those
// of the thread. The thread terminates with its goroutine, because it is never unlocked.
func dialAsOtherUser(socket string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		same := ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, otherUID, same); errno != 0 {
			done <- result{err: errno}
			return
		}
		conn, err := net.Dial("unix", socket)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}
