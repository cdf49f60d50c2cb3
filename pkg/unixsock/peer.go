package unixsock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// firstGroups is for how many supplementary groups room is made at first.
	firstGroups = 64

	// nobody is the user ID that stands for none, which the kernel gives for
	// other kinds of sockets.
	nobody = math.MaxUint32
)

// Peer is the process at the other end of a connection, as the kernel noted it
// when the connection was made (unix(7), SO_PEERCRED).
type Peer struct {
	// PID is its process ID; 0 if it is in a PID namespace that we cannot see.
	PID int
	// UID and GID are its effective user and group.
	UID, GID int
	// Groups are its supplementary groups (SO_PEERGROUPS).
	Groups []int
}

// PeerOf returns the peer of a connection over a unix socket, or why the kernel
// does not name one.
func PeerOf(conn net.Conn) (Peer, error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return Peer{}, fmt.Errorf("peer of a %T: it is no socket", conn)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("peer of a connection: %w", err)
	}
	var peer Peer
	var peerErr error
	if err := raw.Control(func(fd uintptr) { peer, peerErr = peerOf(int(fd)) }); err != nil {
		return Peer{}, fmt.Errorf("peer of a connection: %w", err)
	}
	return peer, peerErr
}

func peerOf(fd int) (Peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Peer{}, fmt.Errorf("peer of a connection (SO_PEERCRED): %w", err)
	}
	if cred.Uid == nobody {
		return Peer{}, errors.New("peer of a connection (SO_PEERCRED): the kernel knows none; expected a connection over a unix socket")
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return Peer{}, fmt.Errorf("groups of the peer of a connection (SO_PEERGROUPS): %w", err)
	}
	return Peer{PID: int(cred.Pid), UID: int(cred.Uid), GID: int(cred.Gid), Groups: groups}, nil
}

// peerGroups asks for the supplementary groups, which SO_PEERCRED leaves out.
// x/sys has the option's number and no function for it.
func peerGroups(fd int) ([]int, error) {
	groups := make([]uint32, firstGroups)
	for {
		size := uint32(len(groups)) * uint32(unsafe.Sizeof(groups[0]))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		n := size / uint32(unsafe.Sizeof(groups[0]))
		switch {
		case errno == 0:
			return toInts(groups[:n]), nil
		case errors.Is(errno, unix.ERANGE) && int(n) > len(groups):
			// The kernel says in size how much room it wants.
			groups = make([]uint32, n)
		case errors.Is(errno, unix.ENOPROTOOPT), errors.Is(errno, unix.ENODATA):
			// A kernel before 4.13, or a peer without credentials: no groups.
			return nil, nil
		default:
			return nil, errno
		}
	}
}

func toInts(groups []uint32) []int {
	ints := make([]int, len(groups))
	for i, g := range groups {
		ints[i] = int(g)
	}
	return ints
}

// peerKey is the context key of a connection's peer.
type peerKey struct{}

// withPeer notes the peer of a connection for its requests (http.Server.ConnContext).
// Without one, Guard refuses them.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	peer, err := PeerOf(conn)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peer)
}

// PeerFrom returns the peer that sent a request, from its context; false if it
// is not known.
func PeerFrom(ctx context.Context) (Peer, bool) {
	peer, ok := ctx.Value(peerKey{}).(Peer)
	return peer, ok
}
