// Package unixsock serves the unix socket, with its mode and group, and authorizes its peers.
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
	// DefaultMode lets owner and group connect.
	DefaultMode fs.FileMode = 0o660

	// maxPath is the maximum length in bytes of a path that a client can connect to:
	// sockaddr_un.sun_path has 108 bytes with the terminating zero (unix(7)).
	maxPath = 107

	parentMode = 0o755
)

// Options are the options of the socket.
type Options struct {
	// Path is the socket's path, at most 107 bytes long.
	Path string
	// Mode are its permission bits; 0 for DefaultMode.
	Mode fs.FileMode
	// Group is its group, by name or number; empty for the default of the file system.
	Group string
}

// Listen opens the socket. It appears at its path with its mode and group set. A stale socket,
// on which no process listens, is replaced. A live one stays, and the error has the path and the
// PID of its process; any other file stays, too. A missing parent directory is created with mode
// 0755; one that belongs to another user is an error.
//
// Closing the listener removes the socket, unless another one is at the path by then.
func Listen(o Options) (net.Listener, error) {
	l, err := listen(o)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", o.Path, err)
	}
	return l, nil
}

func listen(o Options) (*listener, error) {
	gid, err := o.validate()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), parentMode); err != nil {
		return nil, err
	}
	if err := checkParentOwner(filepath.Dir(o.Path)); err != nil {
		return nil, err
	}
	stale, err := findStale(o.Path)
	if err != nil {
		return nil, err
	}
	staging, err := newStagingDir(o.Path)
	if err != nil {
		return nil, err
	}
	defer staging.remove()
	mode := o.Mode
	if mode == 0 {
		mode = DefaultMode
	}
	socket, err := staging.bind(mode.Perm(), gid)
	if err != nil {
		return nil, err
	}
	installed, err := staging.install(stale)
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return &listener{UnixListener: socket, path: o.Path, installed: installed}, nil
}

// Validate returns an error that names the option if the path or the group is invalid. It
// creates nothing.
func (o Options) Validate() error {
	if _, err := o.validate(); err != nil {
		return fmt.Errorf("socket %s: %w", o.Path, err)
	}
	return nil
}

// validate returns the ID of the group.
func (o Options) validate() (gid int, err error) {
	if o.Path == "" {
		return 0, errors.New("the path is empty; expected a path such as /var/run/cilium/delegated-ipam.sock (--socket-path)")
	}
	if len(o.Path) > maxPath {
		return 0, fmt.Errorf("the path has %d bytes; clients cannot connect to one of more than %d, so choose a shorter one (--socket-path)", len(o.Path), maxPath)
	}
	return groupID(o.Group)
}

// groupID returns the ID of a group; for an empty name -1, with which chown(2) keeps the group.
func groupID(group string) (int, error) {
	if group == "" {
		return -1, nil
	}
	if gid, err := strconv.ParseUint(group, 10, 31); err == nil {
		return int(gid), nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, fmt.Errorf("unknown group %q; expected the name of a group of this system, or a number (--socket-group): %w", group, err)
	}
	return strconv.Atoi(g.Gid)
}

// findStale returns the stale socket at a path, nil if there is no file, and an error for a live
// socket or another file, which must stay.
func findStale(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("not a socket (%s); remove it or choose another path (--socket-path)", info.Mode())
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if errors.Is(err, unix.ECONNREFUSED) {
		return info, nil
	}
	if err != nil {
		return nil, fmt.Errorf("a socket exists, and it is unknown whether a process listens on it: %w", err)
	}
	defer conn.Close()
	process := "another process"
	if peer, err := PeerOf(conn); err == nil {
		process = fmt.Sprintf("the process with PID %d (user %d)", peer.PID, peer.UID)
	}
	return nil, fmt.Errorf("%s already listens on it; stop it or choose another path (--socket-path)", process)
}

// listener removes its socket when it is closed.
type listener struct {
	*net.UnixListener
	path string
	// installed is the socket that Listen has installed at the path.
	installed fs.FileInfo

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

// Close stops listening and removes the socket if it is still the installed one.
func (l *listener) Close() error {
	l.once.Do(func() {
		// It is removed before the listener is closed: no sidecar replaces a live socket between
		// Lstat and Remove.
		var err error
		if now, lstatErr := os.Lstat(l.path); lstatErr == nil && os.SameFile(now, l.installed) {
			err = os.Remove(l.path)
		}
		l.err = errors.Join(err, l.UnixListener.Close())
	})
	return l.err
}

// Addr returns the path that clients use, not that of bind(2).
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }
