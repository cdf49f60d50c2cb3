package unixsock

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// lingerTime is how long a connection that the server closes is kept for a client that
// has not read the last response yet.
const lingerTime = 5 * time.Second

// conn is an accepted connection that reports whether its client closed it with a
// response unread. A response that is written without an error is in the kernel's
// buffer, and the client may end before it reads it. The kernel reports that as
// ECONNRESET in place of the end of the stream (Linux, unix_release_sock).
type conn struct {
	*net.UnixConn
	closing atomic.Bool

	mu sync.Mutex
	// reset is set when the client has closed the connection with something unread.
	reset bool
	// unread is called then; nil if there is no response to be watched.
	unread func()
}

// OnUnread calls f, once, if the client closes the connection of a request before it has
// read all of the response. The response must have been written and flushed. The next
// request on the connection ends the watch: the client is alive.
//
// It needs a connection of a listener of Listen, served by Server; otherwise f is never
// called.
func OnUnread(ctx context.Context, f func()) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok && !c.watch(f) {
		f()
	}
}

// connKey is the context key of a request's connection.
type connKey struct{}

// withConn notes the connection for its requests (http.Server.ConnContext).
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// unwatched ends the watch over the response to the request before.
func unwatched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.watch(nil)
		}
		next.ServeHTTP(w, r)
	})
}

// watch sets what is called when the client closes the connection with something
// unread, and reports false if that has happened already.
func (c *conn) watch(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reset {
		return false
	}
	c.unread = f
	return true
}

func (c *conn) watched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unread != nil
}

// wasReset notes that the client has closed the connection with something unread.
func (c *conn) wasReset() {
	c.mu.Lock()
	f := c.unread
	c.reset, c.unread = true, nil
	c.mu.Unlock()
	if f != nil {
		f()
	}
}

// Read reads from the client. Data after a response shows that the client is alive.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.UnixConn.Read(p)
	switch {
	case n > 0:
		c.watch(nil)
	case errors.Is(err, unix.ECONNRESET):
		c.wasReset()
	}
	return n, err
}

// Close closes the connection. If a response is watched that the client has not read yet,
// it waits for the client first; a second call ends that.
func (c *conn) Close() error {
	if c.watched() && c.closing.CompareAndSwap(false, true) && c.closedUnread() {
		c.wasReset()
	}
	return c.UnixConn.Close()
}

// closedUnread reports whether the client has closed the connection with something
// unread. A client that has done neither gets lingerTime to read or to close.
func (c *conn) closedUnread() bool {
	// The order counts: the kernel sets the error before it drops what is unread.
	if c.pending() > 0 {
		_ = c.CloseWrite() // an error shows in the Read
		_ = c.SetReadDeadline(time.Now().Add(lingerTime))
		_, err := c.UnixConn.Read(make([]byte, 1))
		return errors.Is(err, unix.ECONNRESET)
	}
	return c.socketError() == int(unix.ECONNRESET)
}

// pending is how many bytes, with the kernel's own, the client has not read; 0 if that
// is not known.
func (c *conn) pending() (n int) {
	c.control(func(fd int) { n, _ = unix.IoctlGetInt(fd, unix.SIOCOUTQ) })
	return n
}

// socketError takes the error of the connection that the next read would report.
func (c *conn) socketError() (errno int) {
	c.control(func(fd int) { errno, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR) })
	return errno
}

// control calls f with the descriptor, unless the connection is closed.
func (c *conn) control(f func(fd int)) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
