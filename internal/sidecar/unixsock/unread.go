package unixsock

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// lingerTime is how long the server keeps a connection open that it wants to close and whose
// client has not read the last response yet.
const lingerTime = 5 * time.Second

// OnUnread calls f, once, if the client closes the connection of a request before it has read all
// of the response. The response must have been written and flushed. The next request on the
// connection cancels the call: the client is alive.
//
// The context must be that of a request on a connection of Listen, served by Server; otherwise f
// is never called.
func OnUnread(ctx context.Context, f func()) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok && !c.setOnUnread(f) {
		f()
	}
}

// connKey is the context key of a request's connection.
type connKey struct{}

// withConn adds the connection to the context of its requests (http.Server.ConnContext).
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// setOnUnread sets the function that is called when the client closes the connection with unread
// data; nil for none. It reports false if the client has done so already.
func (c *conn) setOnUnread(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reset {
		return false
	}
	c.onUnread = f
	return true
}

func (c *conn) hasOnUnread() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.onUnread != nil
}

// setReset records that the client has closed the connection with unread data, and calls onUnread.
func (c *conn) setReset() {
	c.mu.Lock()
	f := c.onUnread
	c.reset, c.onUnread = true, nil
	c.mu.Unlock()
	if f != nil {
		f()
	}
}

// peerClosedUnread reports whether the client has closed the connection with unread data. A client
// with unread data gets lingerTime to read it or to close the connection.
func (c *conn) peerClosedUnread() bool {
	// The order matters: the kernel sets the error before it drops the unread data.
	if c.unreadBytes() > 0 {
		_ = c.CloseWrite() // Read returns the error, too
		_ = c.SetReadDeadline(time.Now().Add(lingerTime))
		_, err := c.UnixConn.Read(make([]byte, 1))
		return errors.Is(err, unix.ECONNRESET)
	}
	return c.socketError() == int(unix.ECONNRESET)
}

// unreadBytes returns the number of bytes that the client has not read, including overhead of the
// kernel; 0 if it is not known.
func (c *conn) unreadBytes() (n int) {
	c.control(func(fd int) { n, _ = unix.IoctlGetInt(fd, unix.SIOCOUTQ) })
	return n
}

// socketError returns and clears the pending error of the connection, which the next read would
// return.
func (c *conn) socketError() (errno int) {
	c.control(func(fd int) { errno, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR) })
	return errno
}

// control calls f with the file descriptor, unless the connection is closed.
func (c *conn) control(f func(fd int)) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
