package unixsock

import (
	"fmt"
	"net"
	"testing"
)

func TestSupplementaryGroups(t *testing.T) {
	many := make([]uint32, 3*initialGroups)
	for i := range many {
		many[i] = uint32(80000 + i)
	}
	for name, groups := range map[string][]uint32{"none": nil, "two": {80000, 80001}, "many": many} {
		t.Run(name, func(t *testing.T) {
			peer, err := PeerOf(acceptFrom(t, func(path string) (net.Conn, error) {
				return dialAs(t, path, 70001, groups...)
			}))
			if err != nil || peer.UID != 70001 || peer.GID != 70001 || fmt.Sprint(peer.Groups) != fmt.Sprint(groups) {
				t.Errorf("peer %+v, %v; want groups %v", peer, err, groups)
			}
		})
	}
}

func TestPeerOfOtherConnections(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if peer, err := PeerOf(a); err == nil {
		t.Errorf("peer of a net.Pipe: %+v", peer)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer conn.Close()
	if peer, err := PeerOf(conn); err == nil {
		t.Errorf("peer of a TCP connection: %+v", peer)
	}
	closed := acceptFrom(t, func(path string) (net.Conn, error) { return net.Dial("unix", path) })
	must(t, closed.Close())
	if peer, err := PeerOf(closed); err == nil {
		t.Errorf("peer of a closed connection: %+v", peer)
	}
}
