package check

import (
	"fmt"
	"net"
	"os"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/unixsock"
)

// Environment compares the environment of doctor with the sidecar's.
type Environment struct {
	// Known means that Peer is known.
	Known bool
	// Peer is the process that serves the socket; its PID is 0 if it is in another PID
	// namespace.
	Peer unixsock.Peer
	// UID is the user of doctor.
	UID int
	// OtherMounts means that the peer is in another mount namespace.
	OtherMounts bool
}

// collectEnvironment queries the kernel for the peer of a socket if that is served.
func collectEnvironment(socket string, served bool) Environment {
	e := Environment{UID: os.Geteuid()}
	if !served {
		return e
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return e // reported by the check of the sidecar
	}
	defer conn.Close()
	peer, err := unixsock.PeerOf(conn)
	if err != nil {
		return e
	}
	e.Known, e.Peer = true, peer
	if own, err := os.Stat("/proc/self/ns/mnt"); err == nil {
		other, err := os.Stat(fmt.Sprintf("/proc/%d/ns/mnt", peer.PID))
		e.OtherMounts = err == nil && !os.SameFile(own, other) // another user's is not visible
	}
	return e
}

// SameUser reports whether doctor runs as the sidecar's user, as far as that is known.
func (e Environment) SameUser() bool { return !e.Known || e.Peer.UID == e.UID }
