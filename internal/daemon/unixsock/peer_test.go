package unixsock

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	defer l.Close()
	tcp, err := net.Dial("tcp", l.Addr().String())
	check.Must(t, err)
	defer tcp.Close()
	closed := acceptFrom(t, func(path string) (net.Conn, error) { return net.Dial("unix", path) })
	check.Must(t, closed.Close())
	for name, conn := range map[string]net.Conn{"net.Pipe": a, "TCP": tcp, "closed": closed} {
		peer, err := PeerOf(conn)
		check.True(t, err != nil, "peer of a connection, %s: %+v", name, peer)
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
		check.Equal(t, name, c.callers.Allow(c.peer), c.want)
	}
}

// Server adds the peer of each connection to the context of its requests.
func TestPeerFrom(t *testing.T) {
	for name, c := range map[string]struct {
		callers Callers
		uid     int
		want    int
	}{
		"our own user":        {Callers{}, os.Geteuid(), http.StatusOK},
		"another user":        {Callers{UIDs: []int{70002}}, 70001, http.StatusForbidden},
		"allowed user":        {Callers{UIDs: []int{70001}}, 70001, http.StatusOK},
		"primary group":       {Callers{GIDs: []int{70001}}, 70001, http.StatusOK},
		"supplementary group": {Callers{GIDs: []int{70100}}, 70001, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			path, reached := serve(t, c.callers)
			conn, err := dialAs(t, path, c.uid, 70099, 70100)
			check.Must(t, err)
			defer conn.Close()
			send(t, conn, other)
			check.Equal(t, "status", readStatus(t, conn), c.want)
			if len(reached) != map[int]int{http.StatusOK: 1}[c.want] {
				t.Fatalf("%d requests were allowed", len(reached))
			}
			if c.want == http.StatusOK {
				got := <-reached
				check.True(t, got.PID == os.Getpid() && got.UID == c.uid, "peer %+v", got)
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check.Must(t, err)
		serveOn(t, Server(authorize(Callers{}, nil), logging.Discard()), l)
		conn, err := net.Dial("tcp", l.Addr().String())
		check.Must(t, err)
		defer conn.Close()
		send(t, conn, other)
		check.Equal(t, "status", readStatus(t, conn), http.StatusForbidden)
	})
}

// peerHelper makes the test binary print the peer of the connection that it inherits, and whether the
// callers of TestUserNamespace include it.
const peerHelper = "UNIXSOCK_TEST_PEER"

// overflow is the ID that the kernel shows in place of one without a mapping.
const overflow = 65534

func callersOfNobody() Callers { return Callers{UIDs: []int{overflow}, GIDs: []int{overflow}} }

func TestPeerHelper(t *testing.T) {
	if os.Getenv(peerHelper) == "" {
		t.Skip("run by TestUserNamespace")
	}
	conn, err := net.FileConn(os.NewFile(3, "connection"))
	check.Must(t, err)
	peer, err := PeerOf(conn)
	check.Must(t, err)
	check.Must(t, json.NewEncoder(os.NewFile(4, "answer")).Encode(map[string]any{"peer": peer, "allowed": callersOfNobody().Allow(peer)}))
}

// In a user namespace each user without a mapping looks like nobody to the kernel's callers.
//
//evidence:operate/security 65534 in `--allow-uids` of a user namespace, where it means every unmapped user
func TestUserNamespace(t *testing.T) {
	const peerID, group = 70001, 70099
	all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 100000}}
	without := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
	for name, c := range map[string]struct {
		uid, mapped int
		maps        []syscall.SysProcIDMap
		want        bool
	}{
		"our namespace, nobody":    {uid: overflow, want: true},
		"our namespace, another":   {uid: peerID},
		"not mapped":               {uid: peerID, maps: without},
		"mapped to another ID":     {uid: peerID, maps: all},
		"nobody, mapped to itself": {uid: overflow, maps: without},
		"only a group not mapped":  {uid: 1000, maps: without},
	} {
		t.Run(name, func(t *testing.T) {
			server, err := acceptFrom(t, func(path string) (net.Conn, error) { return dialAs(t, path, c.uid, group) }).(*conn).File()
			check.Must(t, err)
			defer server.Close()
			answer, stdout, err := os.Pipe()
			check.Must(t, err)
			defer answer.Close()
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestPeerHelper$")
			cmd.Env = append(os.Environ(), peerHelper+"=1")
			cmd.ExtraFiles = []*os.File{server, stdout}
			if c.maps != nil {
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: c.maps, GidMappings: c.maps}
			}
			out, err := cmd.CombinedOutput()
			check.Must(t, stdout.Close())
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var got struct {
				Peer    Peer
				Allowed bool
			}
			check.Must(t, json.NewDecoder(answer).Decode(&got))
			if got.Allowed != c.want {
				t.Errorf("peer %+v: allowed is %t, want %t", got.Peer, got.Allowed, c.want)
			}
		})
	}
}
