package unixsock

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// maxLines is the largest number of lines in the header of a request. Without it a header of 8 KiB
// could have 2,000 fields, for which net/http needs 300 KiB.
const maxLines = 100

// lingerTime is how long the server keeps a connection open that it wants to close and whose
// client has not read the last response yet.
const lingerTime = 5 * time.Second

var errTooManyLines = errors.New("the header of the request has more than 100 lines")

// conn is an accepted connection. It limits the lines of a header, and reports whether its client
// closed it before it had read the response: a response that was written without an error is in the
// kernel's buffer, and the client may terminate before it reads it. The kernel reports that as
// ECONNRESET in place of the end of the stream (Linux, unix_release_sock).
type conn struct {
	*net.UnixConn
	// peer is the peer; nil if it is not known.
	peer    *Peer
	closing atomic.Bool

	// listener has accepted the connection, and limits it. uid, allowed and ordinary describe its user
	// for that. listener.mu guards idle and request.
	listener          *listener
	uid               int
	allowed, ordinary bool
	// idle is the moment since which no request is in progress; 0 while one is. request is what that
	// counts for the limits of its user.
	idle    uint64
	request counts

	mu sync.Mutex
	// lines is the number of lines that were read since the last request began.
	lines int
	// reset is set when the client has closed the connection with unread data.
	reset bool
	// onUnread, if not nil, is called then.
	onUnread func()
}

// Read reads from the client. Data after a response means that the client is alive.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.UnixConn.Read(p)
	switch {
	case n > 0:
		c.setOnUnread(nil)
	case errors.Is(err, unix.ECONNRESET):
		c.setReset()
	}
	added := bytes.Count(p[:n], []byte("\n"))
	c.mu.Lock()
	defer c.mu.Unlock()
	// The body of a request and its header count alike: no operation has a body.
	if c.lines += added; c.lines > maxLines {
		return 0, errTooManyLines // net/http responds with 400 and closes the connection
	}
	return n, err
}

// connKey is the context key of a request's connection.
type connKey struct{}

// withConn adds a connection to the context of its requests (http.Server.ConnContext).
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// PeerFrom returns the peer that sent a request, from the context of the request; false if it is
// not known.
func PeerFrom(ctx context.Context) (Peer, bool) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok && c.peer != nil {
		return *c.peer, true
	}
	return Peer{}, false
}

// begin is called when a request has been received completely; false if it must not be served, and why.
func (c *conn) begin(method, path string) (begun bool, refusal string) {
	if c.listener == nil {
		return true, ""
	}
	return c.listener.begin(c, method, path)
}

// trackIdle is the http.Server.ConnState of Server.
func trackIdle(c net.Conn, state http.ConnState) {
	if c, ok := c.(*conn); ok && state == http.StateIdle && c.listener != nil {
		c.listener.end(c)
	}
}

// unread returns the number of bytes that the client has not read yet.
func (c *conn) unread() (n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}

// startRequest is called when the header of a request has been read. It cancels OnUnread of the
// previous request on the connection: its client is alive.
func (c *conn) startRequest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines, c.onUnread = 0, nil
}

// Close closes the connection. If onUnread is set and the client has not read the response yet, it
// first waits for the client; a second call ends that.
func (c *conn) Close() error {
	if c.watched() && c.closing.CompareAndSwap(false, true) && c.peerClosedUnread() {
		c.setReset()
	}
	err := c.UnixConn.Close()
	if c.listener != nil {
		c.listener.closed(c)
	}
	return err
}

// watched reports whether Close may call a function of OnUnread.
func (c *conn) watched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.onUnread != nil
}

// OnUnread calls f, once, if the client closes the connection of a request before it has read all
// of the response. The response must have been written and flushed. The next request on the
// connection cancels the call: the client is alive.
//
// The context must belong to a request on a connection of Listen, served by Server; otherwise f
// is never called.
func OnUnread(ctx context.Context, f func()) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok && !c.setOnUnread(f) {
		f()
	}
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
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	unread, pending := 0, 0
	_ = raw.Control(func(fd uintptr) {
		// The order matters: the kernel sets the error before it drops the unread data.
		if unread, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); unread == 0 {
			pending, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		}
	})
	if unread > 0 {
		_ = c.CloseWrite() // Read returns the error, too
		_ = c.SetReadDeadline(time.Now().Add(lingerTime))
		_, err = c.UnixConn.Read(make([]byte, 1))
		return errors.Is(err, unix.ECONNRESET)
	}
	return pending == int(unix.ECONNRESET)
}
