package unixsock

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxLines is the largest number of lines in the header of a request. Without it a header of 8 KiB
// could have 2,000 fields, for which net/http needs 300 KiB.
const maxLines = 100

var errTooManyLines = errors.New("the header of the request has more than 100 lines")

// conn is an accepted connection. It limits the lines of a header, and reports whether its client
// closed it before it had read the response: a response that was written without an error is in the
// kernel's buffer, and the client may terminate before it reads it. The kernel reports that as
// ECONNRESET in place of the end of the stream (Linux, unix_release_sock).
type conn struct {
	*net.UnixConn
	// peer is the peer of a connection of Limit; nil if it is not known.
	peer *Peer
	// onClose, if not nil, is called each time that Close is.
	onClose func()
	closing atomic.Bool

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
	if c.countLines(p[:n]) > maxLines {
		return 0, errTooManyLines // net/http answers 400 and closes the connection
	}
	return n, err
}

// countLines adds the lines in what was read, and returns the sum. The body of a request and its
// header count alike: no operation has a body.
func (c *conn) countLines(read []byte) int {
	added := bytes.Count(read, []byte("\n"))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines += added
	return c.lines
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
	if c.hasOnUnread() && c.closing.CompareAndSwap(false, true) && c.peerClosedUnread() {
		c.setReset()
	}
	err := c.UnixConn.Close()
	if c.onClose != nil {
		c.onClose()
	}
	return err
}
