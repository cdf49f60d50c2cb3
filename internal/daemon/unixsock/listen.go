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
	"strings"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

// maxPath is the maximum length in bytes of a path that a client can connect to:
// sockaddr_un.sun_path has 108 bytes with the terminating zero (unix(7)).
const maxPath = 107

// Options are the options of the socket.
type Options struct {
	// Path is the socket's path, at most 107 bytes long.
	Path string
	// Mode are its permission bits.
	Mode fs.FileMode
	// Group is its group, by name or number; empty for the default of the file system.
	Group string
}

// Listen opens the socket. Only root can connect before it has its mode and group. A stale socket,
// on which no process listens, is replaced. A live one stays, and the error has the path and the
// PID of its process; any other file stays, too. A missing parent directory is created with mode
// 0755; one that belongs to another user is an error.
//
// Closing the listener removes the socket, unless another one is at the path by then.
//
// For a connection that it accepts above a limit the listener closes an idle one of the same user, or
// the new one if there is none, and logs that to log: there are at most 1,024 connections (half of the
// process's descriptors if these are fewer), of these at most half by root, a quarter by users other than
// root and our own, 64 by one of these, and far fewer by users who are not callers (32 in total, 8 by one
// user).
func Listen(o Options, callers Callers, log *logging.Repeated) (net.Listener, error) {
	l, err := listen(o)
	if err != nil {
		return nil, socketError(o.Path, err)
	}
	l.callers, l.log, l.limits = callers, log, newLimits(connectionLimit())
	return l, nil
}

func listen(o Options) (*listener, error) {
	gid, err := o.validate()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o755); err != nil {
		return nil, err
	}
	if err := checkParentOwner(o.Path); err != nil {
		return nil, err
	}
	stale, err := findStale(o.Path)
	if err == nil {
		err = removeSocket(o.Path, stale)
	}
	if err != nil {
		return nil, err
	}
	socket, installed, err := bind(o.Path, o.Mode.Perm(), gid)
	if err != nil {
		return nil, err
	}
	return &listener{UnixListener: socket, path: o.Path, installed: installed, open: map[*conn]bool{}}, nil
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
		return 0, errors.New("the path is empty; expected a path such as /var/run/delegated-ipam/ipam.sock (--socket-path)")
	}
	if strings.HasPrefix(o.Path, "@") || strings.HasPrefix(o.Path, "\x00") {
		return 0, fmt.Errorf("%q is an abstract socket, which has neither mode nor group; expected the path of a file (--socket-path)", o.Path)
	}
	if len(o.Path) > maxPath {
		return 0, fmt.Errorf("the path has %d bytes; clients cannot connect to one of more than %d, so choose a shorter one (--socket-path)", len(o.Path), maxPath)
	}
	return groupID(o.Group)
}

// groupID returns the ID of a group; for an empty name -1, which stands for the one that the socket
// gets from its directory or process.
func groupID(group string) (int, error) {
	if group == "" {
		return -1, nil
	}
	if gid, err := strconv.ParseUint(group, 10, 31); err == nil {
		return int(gid), nil
	}
	g, err := user.LookupGroup(group)
	if _, ok := errors.AsType[user.UnknownGroupError](err); ok {
		return 0, fmt.Errorf("unknown group %q; expected the name of a group of this system, or a number (--socket-group)", group)
	}
	if err != nil {
		return 0, fmt.Errorf("--socket-group %q: %w", group, err)
	}
	return strconv.Atoi(g.Gid)
}

// listener limits the open connections, and removes its socket when it is closed.
type listener struct {
	*net.UnixListener
	path string
	// installed is the socket that Listen has installed at the path.
	installed fs.FileInfo
	callers   Callers
	log       *logging.Repeated
	limits    limits

	once sync.Once
	err  error

	mu sync.Mutex
	// open has the open connections.
	open map[*conn]bool
	// moment numbers the moments at which connections became idle.
	moment uint64
}

// Accept waits for the next connection within the limits.
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		c := &conn{UnixConn: accepted, listener: l}
		if peer, err := PeerOf(accepted); err == nil {
			c.peer = &peer
		}
		limit, surplus := l.admit(c)
		if surplus != nil {
			_ = surplus.Close()
			l.warn(surplus, limit, "Connection closed: too many connections are open")
		}
		if surplus != c {
			return c, nil
		}
	}
}

// warn logs that a limit was reached, with the peer of a connection.
func (l *listener) warn(c *conn, limit, message string) {
	fields := logrus.Fields{"limit": limit}
	if p := c.peer; p != nil {
		fields["peerPID"], fields["peerUID"], fields["peerGID"] = p.PID, p.UID, p.GID
	}
	l.log.Warn(fields, message)
}

// Close stops listening and removes the socket if it is still the installed one.
func (l *listener) Close() error {
	l.once.Do(func() {
		// It is removed before the listener is closed: no daemon replaces a live socket.
		if l.err = removeSocket(l.path, l.installed); l.err != nil {
			l.err = socketError(l.path, l.err)
		}
		l.err = errors.Join(l.err, l.UnixListener.Close())
	})
	return l.err
}
