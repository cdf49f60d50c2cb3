package unixsock

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

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
