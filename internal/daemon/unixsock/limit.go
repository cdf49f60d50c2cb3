package unixsock

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxConnections is the largest number of connections; fewer if the process may have few
// descriptors. One with a request needs up to 64 KiB of memory.
const maxConnections = 1024

// limits are the largest numbers of connections, and of requests and lists in progress.
type limits struct {
	total int
	// root limits root, and our own user, and user each other one. A list that its client does not read
	// occupies 300 KiB.
	root, user counts
	// ordinary and ordinaryLists limit all users but root and our own, so that others cannot block these.
	ordinary, ordinaryLists int
	// refused limits all users who may not call the API, and refusedUser each of them. They need one
	// connection at a time, for GET /v1/healthz or a 403.
	refused, refusedUser int
	// pods limits the requests in progress of a user together with calls of the CNI plugin.
	pods int
}

// counts are numbers of one user, or their limits. The connections without a request remain for health.
type counts struct{ connections, requests, lists int }

// newLimits divides a total of connections. Few suffice for the clients that are not root.
func newLimits(total int) limits {
	root, user := total/2, max(total/16, 1)
	return limits{
		total: total, ordinary: max(total/4, 1), ordinaryLists: 8, refused: max(total/32, 1), refusedUser: max(total/128, 1),
		root: counts{root, max(root*3/4, 1), 8}, user: counts{user, max(user*3/4, 1), 2}, pods: max(root*15/16, 1),
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
	case !c.allowed && l.users[c.uid].connections >= l.limits.refusedUser:
		return fmt.Sprintf("%d of a user who may not call", l.limits.refusedUser)
	case l.users[c.uid].connections >= l.limitsOf(c).connections:
		return fmt.Sprintf("%d of one user", l.limitsOf(c).connections)
	case c.ordinary && l.ordinary >= l.limits.ordinary:
		return fmt.Sprintf("%d of users other than root and the daemon's own", l.limits.ordinary)
	case l.total >= l.limits.total:
		return fmt.Sprintf("%d in total", l.limits.total)
	}
	return ""
}

// limitsOf returns the limits of the user of a connection.
func (l *listener) limitsOf(c *conn) counts {
	if c.ordinary {
		return l.limits.user
	}
	return l.limits.root
}

// oldestIdle returns the connection that c may replace and that has been idle for the longest time; nil
// for none. A client that has not read its response has a request in progress, but not in favor of others.
func (l *listener) oldestIdle(c *conn) (oldest *conn) {
	mayReplace := func(o *conn) bool {
		if o.uid == c.uid {
			return o.allowed == c.allowed && o.unread() == 0
		}
		below := c.allowed && l.users[c.uid].connections < l.limitsOf(c).connections
		return below && o.ordinary && (!c.ordinary || l.users[o.uid].connections > l.users[c.uid].connections+1)
	}
	for o := range l.open {
		if o.idle > 0 && (oldest == nil || o.idle < oldest.idle) && mayReplace(o) {
			oldest = o
		}
	}
	return oldest
}

// begin counts a request that was received completely, until its connection is idle or closed. Otherwise
// it returns why the request is refused, or nothing if the connection was replaced by another one.
func (l *listener) begin(c *conn, method, path string) (begun bool, refusal string) {
	request := counts{requests: 1}
	limit := l.limitsOf(c)
	switch {
	case slices.Contains(healthPaths, path):
		request.requests = 0
	case strings.HasPrefix(path, ofRuntimePath):
		limit.requests = l.limits.pods
	case method == http.MethodGet && path == listPath:
		request.lists = 1
	}
	open, reached := l.count(c, request, limit)
	if open && reached != "" {
		l.warn(c, reached, "Request refused: too many requests are in progress")
	}
	return open && reached == "", reached
}

// count counts a request of an open connection, unless that exceeds a limit, which it returns.
func (l *listener) count(c *conn, request, limit counts) (open bool, reached string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.users[c.uid]
	switch {
	case !l.open[c]:
		return false, ""
	case request.requests > 0 && now.requests >= limit.requests:
		return true, fmt.Sprintf("%d requests of one user", limit.requests)
	case request.lists > 0 && now.lists >= limit.lists:
		return true, fmt.Sprintf("%d lists of one user", limit.lists)
	case request.lists > 0 && c.ordinary && l.ordinaryLists >= l.limits.ordinaryLists:
		return true, fmt.Sprintf("%d lists of users other than root and the daemon's own", l.limits.ordinaryLists)
	}
	c.idle, c.request = 0, request
	l.addRequest(1, c)
	return true, ""
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
	l.addRequest(-1, c)
	c.request = counts{}
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
	l.addToUser(c, counts{connections: n})
	if c.ordinary {
		l.ordinary += n
	}
	if !c.allowed {
		l.refused += n
	}
}

// addRequest adds the request of a connection to the numbers, or removes it.
func (l *listener) addRequest(n int, c *conn) {
	l.addToUser(c, counts{requests: n * c.request.requests, lists: n * c.request.lists})
	if c.ordinary {
		l.ordinaryLists += n * c.request.lists
	}
}

func (l *listener) addToUser(c *conn, n counts) {
	now := l.users[c.uid]
	now = counts{now.connections + n.connections, now.requests + n.requests, now.lists + n.lists}
	if l.users[c.uid] = now; now == (counts{}) {
		delete(l.users, c.uid)
	}
}
