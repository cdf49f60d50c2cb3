package unixsock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// initialGroups is the initial size of the buffer for supplementary groups.
	initialGroups = 64

	// noUID is the user ID that the kernel returns for sockets of another type.
	noUID = math.MaxUint32

	// unmappedID stands for the ID of a user or group without a mapping in our user namespace. No
	// process and no option has it.
	unmappedID = -1
)

// overflowUID and overflowGID return the ID that the kernel shows in place of one without a mapping in
// our user namespace (user_namespaces(7)), and unmappedID if each ID has a mapping. A user who has the
// shown ID cannot be distinguished.
var (
	overflowUID = sync.OnceValue(func() int { return overflowID("uid") })
	overflowGID = sync.OnceValue(func() int { return overflowID("gid") })
)

func overflowID(kind string) int {
	mappings, err := os.ReadFile("/proc/self/" + kind + "_map")
	if f := strings.Fields(string(mappings)); err != nil || len(f) == 3 && f[2] == strconv.Itoa(math.MaxUint32) {
		return unmappedID
	}
	text, _ := os.ReadFile("/proc/sys/kernel/overflow" + kind)
	id, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 65534 // the kernel's default
	}
	return id
}

// visible returns an ID, or unmappedID for the ID that the kernel shows in place of others.
func visible(id, overflow int) int {
	if id == overflow {
		return unmappedID
	}
	return id
}

// Peer has the credentials of the process that made a connection, as of that moment (unix(7),
// SO_PEERCRED).
type Peer struct {
	// PID is its process ID; 0 if it is in a PID namespace that is not visible to us.
	PID int
	// UID and GID are its effective user and group; unmappedID without a mapping in our user namespace.
	UID, GID int
	// Groups are its supplementary groups (SO_PEERGROUPS), in the same way.
	Groups []int
}

// PeerOf returns the peer of a connection. It returns an error if that is not a connection over a
// unix socket, or is closed.
func PeerOf(conn net.Conn) (Peer, error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return Peer{}, fmt.Errorf("peer of a %T: not a socket", conn)
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
	if cred.Uid == noUID {
		return Peer{}, errors.New("peer of a connection (SO_PEERCRED): unknown; expected a connection over a unix socket")
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return Peer{}, fmt.Errorf("groups of the peer of a connection (SO_PEERGROUPS): %w", err)
	}
	for i, g := range groups {
		groups[i] = visible(g, overflowGID())
	}
	return Peer{PID: int(cred.Pid), UID: visible(int(cred.Uid), overflowUID()), GID: visible(int(cred.Gid), overflowGID()), Groups: groups}, nil
}

// peerGroups returns the supplementary groups, which SO_PEERCRED lacks. Package unix has a
// constant for the option and no function.
func peerGroups(fd int) ([]int, error) {
	groups := make([]uint32, initialGroups)
	for {
		size := uint32(len(groups)) * uint32(unsafe.Sizeof(groups[0]))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		n := size / uint32(unsafe.Sizeof(groups[0]))
		switch {
		case errno == 0:
			return toInts(groups[:n]), nil
		case errors.Is(errno, unix.ERANGE) && int(n) > len(groups):
			// The kernel has set size to the necessary size.
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

// withPeer adds the peer of a connection to the context of its requests
// (http.Server.ConnContext). Authorize rejects requests without one.
func withPeer(ctx context.Context, nc net.Conn) context.Context {
	if c, ok := nc.(*conn); ok && c.peer != nil {
		return context.WithValue(ctx, peerKey{}, *c.peer)
	}
	peer, err := PeerOf(nc)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peer)
}

// PeerFrom returns the peer that sent a request, from the context of the request; false if it is
// not known.
func PeerFrom(ctx context.Context) (Peer, bool) {
	peer, ok := ctx.Value(peerKey{}).(Peer)
	return peer, ok
}
