package unixsock

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxLines is the largest number of lines in the header of a request. Without it a header of 8 KiB
// could have 2,000 fields, for which net/http needs 300 KiB.
const maxLines = 100

var errTooManyLines = errors.New("the header of the request has more than 100 lines")

// conn is an accepted connection. It limits the lines of a header.
type conn struct {
	*net.UnixConn
	// peer is the peer; nil if it is not known.
	peer *Peer

	// listener has accepted the connection, and limits it. uid, allowed and ordinary describe its user
	// for that. listener.mu guards idle and request.
	listener          *listener
	uid               int
	allowed, ordinary bool
	// idle is the moment since which no request is in progress; 0 while one is. request is what that
	// counts for the limits of its user.
	idle    uint64
	request counts

	// lines is the number of lines that were read since the last request began.
	lines atomic.Int64
}

// Read reads from the client.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.UnixConn.Read(p)
	// The body of a request and its header count alike: no operation has a body.
	if c.lines.Add(int64(bytes.Count(p[:n], []byte("\n")))) > maxLines {
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

// Left reports whether the client that sent a request has closed its connection, from the context of the request, which
// net/http ends only some time later.
func Left(ctx context.Context) (left bool) {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			polled := []unix.PollFd{{Fd: int32(fd)}}
			_, _ = unix.Poll(polled, 0)
			left = polled[0].Revents&unix.POLLHUP != 0
		})
	}
	return left || err != nil // an error: it is closed here, too
}

// trackIdle is the http.Server.ConnState of Server.
func trackIdle(c net.Conn, state http.ConnState) {
	if c, ok := c.(*conn); ok && state == http.StateIdle {
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

// Close closes the connection.
func (c *conn) Close() error {
	err := c.UnixConn.Close()
	c.listener.closed(c)
	return err
}
