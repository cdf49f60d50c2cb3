package delegate

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// capture reads what a plugin writes to one of its streams. It never waits: watch
// tells it when there is something to be read.
type capture struct {
	kept
	// r is our end of the pipe; none once there is no more to be read.
	r int
	// w is the plugin's end; none once the plugin alone has it.
	w int
	// room is for a plugin that prints much; nil until one does.
	room []byte
}

// newCapture returns a capture whose w is for the plugin. What k refuses ends the
// reading.
func newCapture(k kept) (*capture, error) {
	var ends [2]int
	// Both ends are ours alone to be read and written: what the runtime's own poller
	// would do at each end of a call is more than the call itself needs.
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	return &capture{kept: k, r: ends[0], w: ends[1]}, nil
}

// read reads once, at most size bytes, and tells how many came.
// There must be bytes or the end of the stream, else it would wait. At the end, and
// after an error, it stops: the stream is read no more.
func (c *capture) read(size int) (int, error) {
	var few [chunk]byte
	buffer := few[:]
	if c.room != nil {
		buffer = c.room
	}
	n, err := unix.Read(c.r, buffer[:min(size, len(buffer))])
	switch {
	case errors.Is(err, unix.EINTR):
		return 0, nil
	case err != nil || n == 0:
		c.stop()
		return 0, os.NewSyscallError("read", err)
	}
	if err := c.keep(buffer[:n]); err != nil {
		c.stop()
		return n, err
	}
	if n == chunk && c.room == nil { // there may be more, and it must not wait for us
		c.room = make([]byte, full)
	}
	return n, nil
}

// finish reads what is in the pipe now, and no more: a child of the plugin that
// goes on writing must not hold us. It is called once, after the plugin has
// ended; all it wrote is then in keep or in the pipe.
func (c *capture) finish() error {
	defer c.stop()
	if c.r == none {
		return nil
	}
	left, err := unix.IoctlGetInt(c.r, unix.TIOCINQ)
	for err == nil && left > 0 && c.r != none {
		var n int
		n, err = c.read(left)
		left -= n
	}
	return err
}

// handOver leaves the plugin's end to the plugin, which has been started.
func (c *capture) handOver() {
	if c.w != none {
		_ = unix.Close(c.w)
		c.w = none
	}
}

// stop gives our end of the pipe back.
func (c *capture) stop() {
	if c.r != none {
		_ = unix.Close(c.r)
		c.r = none
	}
}

// close gives up a capture of a plugin that was not started.
func (c *capture) close() {
	c.stop()
	c.handOver()
}

// errTooMuch is what kept answers to bytes beyond its limit.
var errTooMuch = errors.New("too much output")

// kept is what is kept of a stream.
type kept struct {
	// limit is how many bytes there may be.
	limit int
	// last tells that of more bytes the last ones are kept; else more are refused.
	last  bool
	bytes []byte
}

// keep adds bytes. The error is errTooMuch.
func (k *kept) keep(p []byte) error {
	over := len(k.bytes) + len(p) - k.limit
	switch {
	case over <= 0:
		k.bytes = append(k.bytes, p...)
	case !k.last:
		return errTooMuch
	default:
		all := append(k.bytes, p...)
		k.bytes = append(all[:0], all[over:]...)
	}
	return nil
}
