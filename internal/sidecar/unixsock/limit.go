package unixsock

import (
	"fmt"
	"slices"
	"strings"

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
	// requests limits the requests in progress of one user, and pods those together with calls of the
	// CNI plugin. The other connections of the user remain for health.
	requests, pods int
}

// newLimits divides a total of connections.
func newLimits(total int) limits {
	user := total / 2
	return limits{
		total: total, ordinary: total * 3 / 4, user: user, refused: max(total/32, 1), refusedUser: max(total/128, 1),
		requests: max(user*3/4, 1), pods: max(user*15/16, 1),
	}
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

// admit counts a connection until it is closed. If there are too many, it returns the limit, and the
// connection that the caller has to close: the oldest idle one of the same user in place of the new one,
// or the new one if each has a request in progress. Root and our own user also replace idle ones of
// others.
func (l *listener) admit(c *conn) (limit string, surplus *conn) {
	c.uid, c.allowed, c.ordinary = UnmappedID, false, true
	if p := c.peer; p != nil {
		c.uid, c.allowed, c.ordinary = p.UID, l.callers.Allow(*p), !p.Privileged()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if limit = l.reached(c); limit != "" {
		if surplus = l.oldestIdle(c); surplus == nil {
			return limit, c
		}
		l.remove(surplus)
	}
	c.listener = l
	l.open[c] = true
	l.add(1, c)
	l.setIdle(c)
	return limit, surplus
}

// reached returns the limit that a further connection would exceed; empty for none.
func (l *listener) reached(c *conn) string {
	switch {
	case !c.allowed && l.refused >= l.limits.refused:
		return fmt.Sprintf("%d of users who may not call", l.limits.refused)
	case !c.allowed && l.users[c.uid] >= l.limits.refusedUser:
		return fmt.Sprintf("%d of a user who may not call", l.limits.refusedUser)
	case l.users[c.uid] >= l.limits.user:
		return fmt.Sprintf("%d of one user", l.limits.user)
	case c.ordinary && l.ordinary >= l.limits.ordinary:
		return fmt.Sprintf("%d of users other than root and the sidecar's own", l.limits.ordinary)
	case l.total >= l.limits.total:
		return fmt.Sprintf("%d in total", l.limits.total)
	}
	return ""
}

// oldestIdle returns the connection that c may replace and that has been idle for the longest time; nil
// for none. A client that has not read its response has a request in progress.
func (l *listener) oldestIdle(c *conn) (oldest *conn) {
	others := !c.ordinary && l.users[c.uid] < l.limits.user
	for o := range l.open {
		if (o.uid == c.uid && o.allowed == c.allowed || others && o.ordinary) && o.idle > 0 &&
			(oldest == nil || o.idle < oldest.idle) && o.unread() == 0 {
			oldest = o
		}
	}
	return oldest
}

// begin counts a request that was received completely, until its connection is idle or closed. It
// returns false if the user has too many, or if the connection was replaced by another one.
func (l *listener) begin(c *conn, path string) bool {
	limit := l.limits.requests
	switch {
	case slices.Contains(healthPaths, path):
		limit = 0
	case strings.HasPrefix(path, ofRuntimePath):
		limit = l.limits.pods
	}
	open, begun := l.count(c, limit)
	if open && !begun {
		l.warn(c, fmt.Sprintf("%d requests of one user", limit), "Request refused: too many requests are in progress")
	}
	return begun
}

// count counts the request of an open connection below a limit; with 0 it is not counted.
func (l *listener) count(c *conn, limit int) (open, begun bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open[c] || limit > 0 && l.requests[c.uid] >= limit {
		return l.open[c], false
	}
	c.idle = 0
	if c.counted = limit > 0; c.counted {
		l.requests[c.uid]++
	}
	return true, true
}

// end records that the response to the last request was written.
func (l *listener) end(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setIdle(c)
}

func (l *listener) setIdle(c *conn) {
	l.uncount(c)
	l.moment++
	c.idle = l.moment
}

// uncount ends the request of a connection.
func (l *listener) uncount(c *conn) {
	if !c.counted {
		return
	}
	c.counted = false
	if l.requests[c.uid]--; l.requests[c.uid] == 0 {
		delete(l.requests, c.uid)
	}
}

// closed is called each time that a connection is closed.
func (l *listener) closed(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(c)
}

// remove ends the count of a connection.
func (l *listener) remove(c *conn) {
	if l.open[c] {
		delete(l.open, c)
		l.uncount(c)
		l.add(-1, c)
	}
}

// add adds to the numbers of connections.
func (l *listener) add(n int, c *conn) {
	l.total += n
	if l.users[c.uid] += n; l.users[c.uid] == 0 {
		delete(l.users, c.uid)
	}
	if c.ordinary {
		l.ordinary += n
	}
	if !c.allowed {
		l.refused += n
	}
}
