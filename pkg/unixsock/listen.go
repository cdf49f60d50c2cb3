// Package unixsock is the door: the unix socket with its mode and group, and who
// may call through it.
package unixsock

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// DefaultMode lets owner and group call.
	DefaultMode fs.FileMode = 0o660

	// maxPath is what a client can put into sockaddr_un.sun_path, which has 108
	// bytes with the closing zero (unix(7)).
	maxPath = 107

	parentMode = 0o755
)

// Options say where the socket is and for whom.
type Options struct {
	// Path is the socket's path, at most 107 bytes long.
	Path string
	// Mode is its permission bits; 0 for DefaultMode.
	Mode fs.FileMode
	// Group is its group, by name or number; empty to leave it as it comes.
	Group string
}

// Listen opens the socket. It appears under its path only when its mode and
// group are set. A socket on which nobody listens any more is replaced. One on
// which somebody does is left alone: the error names the path and the PID. What is no socket
// is left alone as well. A missing parent folder is made (mode 0755); one of another
// user is refused.
//
// Closing the listener removes the socket, unless the path leads to another one by then.
func Listen(o Options) (net.Listener, error) {
	l, err := listen(o)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", o.Path, err)
	}
	return l, nil
}

func listen(o Options) (*listener, error) {
	gid, err := o.check()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), parentMode); err != nil {
		return nil, err
	}
	if err := checkFolder(filepath.Dir(o.Path)); err != nil {
		return nil, err
	}
	stale, err := lookFor(o.Path)
	if err != nil {
		return nil, err
	}
	room, err := newRoom(o.Path)
	if err != nil {
		return nil, err
	}
	defer room.remove()
	mode := o.Mode
	if mode == 0 {
		mode = DefaultMode
	}
	socket, err := room.bind(mode.Perm(), gid)
	if err != nil {
		return nil, err
	}
	ours, err := room.place(stale)
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return &listener{UnixListener: socket, path: o.Path, ours: ours}, nil
}

// Validate refuses a path or a group that can never work; it makes nothing. The
// error names the option.
func (o Options) Validate() error {
	if _, err := o.check(); err != nil {
		return fmt.Errorf("socket %s: %w", o.Path, err)
	}
	return nil
}

// check returns the number of the group.
func (o Options) check() (gid int, err error) {
	if o.Path == "" {
		return 0, errors.New("its path is empty; expected a path such as /var/run/cilium/delegated-ipam.sock (--socket-path)")
	}
	if len(o.Path) > maxPath {
		return 0, fmt.Errorf("its path has %d bytes; no client can name one of more than %d, so choose a shorter one (--socket-path)", len(o.Path), maxPath)
	}
	return groupID(o.Group)
}

// groupID is the number of a group; -1, which chown(2) takes for "leave", for none.
func groupID(group string) (int, error) {
	if group == "" {
		return -1, nil
	}
	if gid, err := strconv.ParseUint(group, 10, 31); err == nil {
		return int(gid), nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, fmt.Errorf("its group %q is not known; expected the name of a group of this system, or a number (--socket-group): %w", group, err)
	}
	return strconv.Atoi(g.Gid)
}

// lookFor returns the stale socket at a path, nil if there is nothing, an error
// if what is there must stay.
func lookFor(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("there is something else (%s); expected a socket or nothing, so remove it or choose another path", info.Mode())
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if errors.Is(err, unix.ECONNREFUSED) {
		return info, nil
	}
	if err != nil {
		return nil, fmt.Errorf("there is a socket already, and whether anybody listens on it cannot be told: %w", err)
	}
	defer conn.Close()
	who := "another process"
	if peer, err := PeerOf(conn); err == nil {
		who = fmt.Sprintf("the process with PID %d (user %d)", peer.PID, peer.UID)
	}
	return nil, fmt.Errorf("%s already listens on it; stop that one or choose another path (--socket-path)", who)
}

// listener removes its socket when it is closed.
type listener struct {
	*net.UnixListener
	path string
	ours fs.FileInfo

	once sync.Once
	err  error
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return &conn{UnixConn: c}, nil
}

// Close stops listening and removes the socket if it still is ours.
func (l *listener) Close() error {
	l.once.Do(func() {
		// Removed first: while we listen nobody replaces it between look and removal.
		var err error
		if now, lstatErr := os.Lstat(l.path); lstatErr == nil && os.SameFile(now, l.ours) {
			err = os.Remove(l.path)
		}
		l.err = errors.Join(err, l.UnixListener.Close())
	})
	return l.err
}

// Addr is the path that clients use, not the one of the bind.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }
