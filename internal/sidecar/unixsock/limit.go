package unixsock

import (
	"fmt"
	"net"
	"sync"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

// maxConnections is the largest number of connections; fewer if the process may have few
// descriptors. One with a request needs up to 64 KiB of memory.
const maxConnections = 1024

// limits are the largest numbers of connections.
type limits struct {
	// total is that of all users.
	total int
	// ordinary is that of all users but root and our own, so that others cannot block these.
	ordinary int
	// user is that of one user.
	user int
	// refused is that of all users who may not call the API, and refusedUser that of one of them.
	// They need one at a time, for GET /v1/healthz or a 403.
	refused, refusedUser int
}

// newLimits divides a total of connections.
func newLimits(total int) limits {
	return limits{total: total, ordinary: total * 3 / 4, user: total / 2, refused: max(total/32, 1), refusedUser: max(total/128, 1)}
}

// connectionLimit returns maxConnections, or half of the descriptors that the process may have:
// plugin processes and files need some, too.
func connectionLimit() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil || files.Cur/2 >= maxConnections {
		return maxConnections
	}
	return int(files.Cur / 2)
}

// Limit returns a listener for the connections of l, which Listen has returned. It closes a
// connection that it accepts above a limit: there are at most 1,024 connections (half of the
// process's descriptors if these are fewer), of these at most three quarters by users other than
// root and our own, half by one user, and far fewer by users who may not call (32 in total, 8 by
// one user). It logs closed connections to log.
func Limit(l net.Listener, callers Callers, log *logging.Repeated) net.Listener {
	return &limited{Listener: l, callers: callers, log: log, limits: newLimits(connectionLimit()), users: map[int]int{}}
}

// limited is a listener that limits the open connections.
type limited struct {
	net.Listener
	callers Callers
	log     *logging.Repeated
	limits  limits

	mu sync.Mutex
	// total, ordinary and refused are the numbers of open connections, and users those of each
	// user who has one.
	total, ordinary, refused int
	users                    map[int]int
}

// Accept waits for the next connection within the limits.
func (l *limited) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, ok := accepted.(*conn)
		if !ok {
			return nil, fmt.Errorf("a %T was accepted; expected a connection of Listen", accepted)
		}
		if limit := l.admit(c); limit != "" {
			_ = c.Close()
			fields := logrus.Fields{"limit": limit}
			if c.peer != nil {
				fields["peerPID"], fields["peerUID"], fields["peerGID"] = c.peer.PID, c.peer.UID, c.peer.GID
			}
			l.log.Warn(fields, "Connection closed: too many connections are open")
			continue
		}
		return c, nil
	}
}

// admit counts a connection until it is closed. If there are too many, it returns the limit.
func (l *limited) admit(c *conn) (limit string) {
	uid, allowed, ordinary := unmappedID, false, true
	if peer, err := PeerOf(c); err == nil {
		c.peer = &peer
		uid, allowed, ordinary = peer.UID, l.callers.Allow(peer), !privileged(peer)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !allowed && l.refused >= l.limits.refused:
		return fmt.Sprintf("%d of users who may not call", l.limits.refused)
	case !allowed && l.users[uid] >= l.limits.refusedUser:
		return fmt.Sprintf("%d of a user who may not call", l.limits.refusedUser)
	case l.users[uid] >= l.limits.user:
		return fmt.Sprintf("%d of one user", l.limits.user)
	case ordinary && l.ordinary >= l.limits.ordinary:
		return fmt.Sprintf("%d of users other than root and the sidecar's own", l.limits.ordinary)
	case l.total >= l.limits.total:
		return fmt.Sprintf("%d in total", l.limits.total)
	}
	l.add(1, uid, allowed, ordinary)
	c.onClose = sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.add(-1, uid, allowed, ordinary)
	})
	return ""
}

// add adds to the numbers of connections.
func (l *limited) add(n, uid int, allowed, ordinary bool) {
	l.total += n
	if l.users[uid] += n; l.users[uid] == 0 {
		delete(l.users, uid)
	}
	if ordinary {
		l.ordinary += n
	}
	if !allowed {
		l.refused += n
	}
}
