package unixsock

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// maxConnections is the largest number of connections; fewer if the process may have few
// descriptors. One with a request needs up to 64 KiB of memory.
const maxConnections = 1024

// limits are the largest numbers of connections.
type limits struct {
	total int
	// ordinary limits all users but root and our own, so that others cannot block these.
	ordinary int
	// user limits one user.
	user int
	// refused limits all users who may not call the API, and refusedUser each of them. They need one
	// connection at a time, for GET /v1/healthz or a 403.
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

// admit counts a connection until it is closed. If there are too many, it returns the limit.
func (l *listener) admit(c *conn) (limit string) {
	uid, allowed, ordinary := UnmappedID, false, true
	if p := c.peer; p != nil {
		uid, allowed, ordinary = p.UID, l.callers.Allow(*p), !p.Privileged()
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
func (l *listener) add(n, uid int, allowed, ordinary bool) {
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
