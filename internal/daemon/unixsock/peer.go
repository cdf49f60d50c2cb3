package unixsock

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
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

	// UnmappedID stands for the ID of a user or group without a mapping in our user namespace. No
	// process and no option has it.
	UnmappedID = -1
)

// overflowUID and overflowGID return the ID that the kernel shows in place of one without a mapping in
// our user namespace (user_namespaces(7)), and UnmappedID if each ID has a mapping. A user who has the
// shown ID cannot be distinguished.
var (
	overflowUID = sync.OnceValue(func() int { return overflowID("uid") })
	overflowGID = sync.OnceValue(func() int { return overflowID("gid") })
)

func overflowID(kind string) int {
	mappings, err := os.ReadFile("/proc/self/" + kind + "_map")
	if f := strings.Fields(string(mappings)); err != nil || len(f) == 3 && f[2] == strconv.Itoa(math.MaxUint32) {
		return UnmappedID
	}
	text, _ := os.ReadFile("/proc/sys/kernel/overflow" + kind)
	id, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 65534 // the kernel's default
	}
	return id
}

// visible returns an ID, or UnmappedID for the ID that the kernel shows in place of others.
func visible(id, overflow int) int {
	if id == overflow {
		return UnmappedID
	}
	return id
}

// Peer has the credentials of the process that made a connection, as of that moment (unix(7),
// SO_PEERCRED).
type Peer struct {
	// PID is its process ID; 0 if it is in a PID namespace that is not visible to us.
	PID int
	// UID and GID are its effective user and group; UnmappedID without a mapping in our user namespace.
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
			ids := make([]int, n)
			for i, g := range groups[:n] {
				ids[i] = visible(int(g), overflowGID())
			}
			return ids, nil
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

// Privileged reports whether a peer is root or our own user.
func (p Peer) Privileged() bool { return p.UID == 0 || p.UID == os.Geteuid() }

// Callers are the users and groups that may call the API, besides root and our own user.
type Callers struct {
	// UIDs are user IDs (--allow-uids).
	UIDs []int
	// GIDs are IDs of primary or supplementary groups (--allow-gids).
	GIDs []int
}

// Allow reports whether a peer may call the API.
func (c Callers) Allow(p Peer) bool {
	return p.Privileged() || slices.Contains(c.UIDs, p.UID) ||
		slices.ContainsFunc(append([]int{p.GID}, p.Groups...), func(g int) bool { return slices.Contains(c.GIDs, g) })
}
