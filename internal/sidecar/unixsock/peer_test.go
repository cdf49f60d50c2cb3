package unixsock

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
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

func TestCallersAllow(t *testing.T) {
	foreign := Peer{UID: 70001, GID: 70002, Groups: []int{70003, 70004}}
	for name, c := range map[string]struct {
		callers Callers
		peer    Peer
		want    bool
	}{
		"root":                               {Callers{}, Peer{UID: 0, GID: 0}, true},
		"our own user":                       {Callers{}, Peer{UID: os.Geteuid(), GID: 70002}, true},
		"another user":                       {Callers{}, foreign, false},
		"allowed user":                       {Callers{UIDs: []int{1, 70001}}, foreign, true},
		"allowed primary group":              {Callers{GIDs: []int{70002}}, foreign, true},
		"allowed supplementary group":        {Callers{GIDs: []int{70004}}, foreign, true},
		"user ID as group, group ID as user": {Callers{UIDs: []int{70002, 70003}, GIDs: []int{70001}}, foreign, false},
		"root's group":                       {Callers{}, Peer{UID: 70001, GID: 0}, false},
		"other IDs":                          {Callers{UIDs: []int{5}, GIDs: []int{6}}, foreign, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.callers.Allow(c.peer); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

func TestOwnUser(t *testing.T) {
	path, reached := serve(t, Callers{})
	dial := func() (net.Conn, error) { return net.Dial("unix", path) }
	resp := sendRequest(t, dial, http.MethodPost, "/v1/ipam")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %s", resp.Status)
	}
	if got := <-reached; got.PID != os.Getpid() || got.UID != os.Geteuid() || got.GID != os.Getegid() {
		t.Errorf("peer %+v, want PID %d, user %d, group %d", got, os.Getpid(), os.Geteuid(), os.Getegid())
	}
}

func TestForeignUser(t *testing.T) {
	path, reached := serve(t, Callers{UIDs: []int{70002}})
	resp := sendRequest(t, func() (net.Conn, error) { return dialAs(t, path, 70001) }, http.MethodPost, "/v1/ipam")
	if resp.StatusCode != http.StatusForbidden || len(reached) > 0 {
		t.Errorf("status %s, %d requests were allowed; want 403 and none", resp.Status, len(reached))
	}
}

func TestAllowedUser(t *testing.T) {
	for name, callers := range map[string]Callers{
		"user":                {UIDs: []int{70001}},
		"primary group":       {GIDs: []int{70001}},
		"supplementary group": {GIDs: []int{70100}},
	} {
		t.Run(name, func(t *testing.T) {
			path, reached := serve(t, callers)
			dial := func() (net.Conn, error) { return dialAs(t, path, 70001, 70099, 70100) }
			if resp := sendRequest(t, dial, http.MethodPost, "/v1/ipam"); resp.StatusCode != http.StatusOK {
				t.Fatalf("status %s", resp.Status)
			}
			if got := <-reached; got.UID != 70001 {
				t.Errorf("peer %+v", got)
			}
		})
	}
}

func TestUnknownPeer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	serveOn(t, Server(authorize(Callers{}, nil), logging.Discard()), l)
	dial := func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
	if resp := sendRequest(t, dial, http.MethodGet, "/v1/ipam"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %s", resp.Status)
	}
}
