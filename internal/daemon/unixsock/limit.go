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
	now := l.numbers()
	if limit = l.reached(c, now); limit != "" {
		if surplus = l.oldestIdle(c, now); surplus == nil {
			return limit, c
		}
		delete(l.open, surplus)
	}
	l.open[c] = true
	l.setIdle(c)
	return limit, surplus
}

// numbers are those of the open connections.
type numbers struct {
	ordinary, refused, ordinaryLists int
	// users has the numbers of each user, without requests for health.
	users map[int]counts
}

func (l *listener) numbers() numbers {
	n := numbers{users: map[int]counts{}}
	for c := range l.open {
		u := n.users[c.uid]
		n.users[c.uid] = counts{u.connections + 1, u.requests + c.request.requests, u.lists + c.request.lists}
		if c.ordinary {
			n.ordinary++
			n.ordinaryLists += c.request.lists
		}
		if !c.allowed {
			n.refused++
		}
	}
	return n
}

// reached returns the limit that a further connection would exceed; empty for none.
func (l *listener) reached(c *conn, now numbers) string {
	switch {
	case !c.allowed && now.refused >= l.limits.refused:
		return fmt.Sprintf("%d of users who may not call", l.limits.refused)
	case !c.allowed && now.users[c.uid].connections >= l.limits.refusedUser:
		return fmt.Sprintf("%d of a user who may not call", l.limits.refusedUser)
	case now.users[c.uid].connections >= l.limitsOf(c).connections:
		return fmt.Sprintf("%d of one user", l.limitsOf(c).connections)
	case c.ordinary && now.ordinary >= l.limits.ordinary:
		return fmt.Sprintf("%d of users other than root and the daemon's own", l.limits.ordinary)
	case len(l.open) >= l.limits.total:
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
func (l *listener) oldestIdle(c *conn, now numbers) (oldest *conn) {
	mayReplace := func(o *conn) bool {
		if o.uid == c.uid {
			return o.allowed == c.allowed && o.unread() == 0
		}
		below := c.allowed && now.users[c.uid].connections < l.limitsOf(c).connections
		return below && o.ordinary && (!c.ordinary || now.users[o.uid].connections > now.users[c.uid].connections+1)
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
	all := l.numbers()
	now := all.users[c.uid]
	switch {
	case !l.open[c]:
		return false, ""
	case request.requests > 0 && now.requests >= limit.requests:
		return true, fmt.Sprintf("%d requests of one user", limit.requests)
	case request.lists > 0 && now.lists >= limit.lists:
		return true, fmt.Sprintf("%d lists of one user", limit.lists)
	case request.lists > 0 && c.ordinary && all.ordinaryLists >= l.limits.ordinaryLists:
		return true, fmt.Sprintf("%d lists of users other than root and the daemon's own", l.limits.ordinaryLists)
	}
	c.idle, c.request = 0, request
	return true, ""
}

// end records that the response to the last request was written.
func (l *listener) end(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setIdle(c)
}

func (l *listener) setIdle(c *conn) {
	l.moment++
	c.idle, c.request = l.moment, counts{}
}

// closed is called each time that a connection is closed.
func (l *listener) closed(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}
