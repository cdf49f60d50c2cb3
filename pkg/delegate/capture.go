package delegate

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// capture reads what a plugin writes to one of its streams. The end of the
// plugin ends it, not the end of the stream: a child of the plugin that keeps
// the stream open would hold it for as long as it lives.
type capture struct {
	keep    io.Writer
	r, w    *os.File
	stopped chan struct{}
	err     error
}

// newCapture returns a capture whose w is for the plugin. What keep refuses
// ends the reading, and stopped is closed.
func newCapture(keep io.Writer) (*capture, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &capture{keep: keep, r: r, w: w, stopped: make(chan struct{})}, nil
}

// start begins to read, once the plugin has its end of the pipe.
func (c *capture) start() {
	c.w.Close()
	go func() {
		defer close(c.stopped)
		c.err = c.read(c.r)
	}()
}

// read copies by a small buffer: io.Copy alone would take the file's own
// WriterTo and 32 KiB for a hundred bytes.
func (c *capture) read(from io.Reader) error {
	_, err := io.CopyBuffer(c.keep, struct{ io.Reader }{from}, make([]byte, 4<<10))
	return err
}

// finish reads what is in the pipe now, and no more. It is called once, after
// the plugin has ended; all it wrote is then in keep or in the pipe.
func (c *capture) finish() error {
	defer c.r.Close()
	if err := c.r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	<-c.stopped
	if !errors.Is(c.err, os.ErrDeadlineExceeded) {
		return c.err
	}
	if err := c.r.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	left, err := c.buffered()
	if err != nil {
		return err
	}
	return c.read(io.LimitReader(c.r, int64(left)))
}

// buffered returns how many bytes are in the pipe.
func (c *capture) buffered() (int, error) {
	conn, err := c.r.SyscallConn()
	if err != nil {
		return 0, err
	}
	n := 0
	var ioctlErr error
	err = conn.Control(func(fd uintptr) { n, ioctlErr = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n, errors.Join(err, ioctlErr)
}

// close gives up a capture that was never started.
func (c *capture) close() {
	c.r.Close()
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
