package delegate

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// capture reads what a plugin writes to one of its streams. It never waits: watch
// tells it when there is something to be read.
type capture struct {
	keep io.Writer
	// r is our end of the pipe; none once there is no more to be read.
	r int
	w *os.File
}

// none is the place of a descriptor that poll(2) is to pass over.
const none = -1

// newCapture returns a capture whose w is for the plugin. What keep refuses ends
// the reading.
func newCapture(keep io.Writer) (*capture, error) {
	var ends [2]int
	// Both ends are ours alone to be read and written: what the runtime's own poller
	// would do at each end of a call is more than the call itself needs.
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	c := &capture{keep: keep, r: ends[0], w: os.NewFile(uintptr(ends[1]), "plugin output")}
	if err := unix.SetNonblock(c.r, true); err != nil {
		c.close()
		return nil, os.NewSyscallError("fcntl", err)
	}
	return c, nil
}

// read reads once, at most size bytes, and tells how many came. At the end of the
// stream, and after an error, it stops: the stream is read no more.
func (c *capture) read(size int) (int, error) {
	buffer := make([]byte, size)
	n, err := unix.Read(c.r, buffer)
	switch {
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		return 0, nil
	case err != nil || n == 0:
		c.stop()
		return 0, os.NewSyscallError("read", err)
	}
	if _, err := c.keep.Write(buffer[:n]); err != nil {
		c.stop()
		return n, err
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
		n, err = c.read(min(left, chunk))
		left -= n
	}
	return err
}

// stop gives our end of the pipe back.
func (c *capture) stop() {
	if c.r != none {
		_ = unix.Close(c.r)
		c.r = none
	}
}

// close gives up a capture that was never started.
func (c *capture) close() {
	c.stop()
	c.w.Close()
}

// errTooMuch is what bounded answers to bytes beyond its limit.
var errTooMuch = errors.New("too much output")

// bounded keeps up to limit bytes and refuses more.
type bounded struct {
	limit int
	kept  []byte
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if len(b.kept)+len(p) > b.limit {
		return 0, errTooMuch
	}
	b.kept = append(b.kept, p...)
	return len(p), nil
}

// tail keeps the last limit bytes.
type tail struct {
	limit int
	kept  []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.limit; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}
