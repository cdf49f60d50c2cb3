package contract

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// otherID is the ID of a user and a group that are neither root's nor our own, which may always
// call.
const otherID = 65534

// proxyAsOtherUser returns a client of a proxy that connects to the node's socket as another user.
// Clients with a separate dial function can use its socket, too.
func proxyAsOtherUser(t *testing.T, n *harness.Node) harness.Client {
	t.Helper()
	if os.Geteuid() != 0 {
		harness.Skipf(t, "only root can connect as another user")
	}
	// Without access to the directory the kernel would reject the connection.
	harness.Must(t, os.Chmod(n.Dir, 0o755))
	path := filepath.Join(n.Dir, "other.sock")
	listener, err := net.Listen("unix", path)
	harness.Must(t, err)
	go forward(listener, harness.Client{Socket: n.Socket})
	t.Cleanup(func() { listener.Close() })
	return harness.Client{Socket: path}
}

// forward forwards connections until the listener is closed. Connections that a client keeps open
// end with the sidecar.
func forward(listener net.Listener, sidecar harness.Client) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		to, err := sidecar.DialAs(harness.User{UID: otherID, GID: otherID})
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
