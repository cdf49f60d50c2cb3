package unixsock

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// accepted returns the server's end of a connection.
func accepted(t *testing.T, dial func(path string) (net.Conn, error)) net.Conn {
	t.Helper()
	path := filepath.Join(folder(t), "s.sock")
	l := listenOn(t, Options{Path: path, Mode: 0o666})
	must(t, os.Chmod(filepath.Dir(path), 0o755))
	client, err := dial(path)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	server, err := l.Accept()
	must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return server
}

func TestEverySupplementaryGroupIsKnownHoweverManyThereAre(t *testing.T) {
	many := make([]uint32, 3*firstGroups)
	for i := range many {
		many[i] = uint32(80000 + i)
	}
	for name, groups := range map[string][]uint32{"none": nil, "two": {80000, 80001}, "many": many} {
		t.Run(name, func(t *testing.T) {
			peer, err := PeerOf(accepted(t, func(path string) (net.Conn, error) {
				return asStranger(t, path, 70001, groups...)
			}))
			if err != nil || peer.UID != 70001 || peer.GID != 70001 || !slices.Equal(peer.Groups, toInts(groups)) {
				t.Errorf("peer %+v, %v; want groups %v", peer, err, groups)
			}
		})
	}
}

func TestWhatIsNoUnixSocketHasNoPeer(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if peer, err := PeerOf(a); err == nil {
		t.Errorf("a pipe in memory has peer %+v", peer)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer conn.Close()
	if peer, err := PeerOf(conn); err == nil {
		t.Errorf("a TCP connection has peer %+v", peer)
	}
	gone := accepted(t, func(path string) (net.Conn, error) { return net.Dial("unix", path) })
	must(t, gone.Close())
	if peer, err := PeerOf(gone); err == nil {
		t.Errorf("a closed connection has peer %+v", peer)
	}
}
