package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errTooMuchOutput is the error for bytes beyond the limit of a boundedBuffer.
var errTooMuchOutput = errors.New("too much output")

// boundedBuffer keeps the bytes of a stream up to a limit.
type boundedBuffer struct {
	// limit is the most bytes that are kept.
	limit int
	// keepTail keeps the last bytes of more; otherwise more are refused.
	keepTail bool
	bytes    []byte
}

// add appends bytes. The error is errTooMuchOutput.
func (b *boundedBuffer) add(p []byte) error {
	excess := len(b.bytes) + len(p) - b.limit
	switch {
	case excess <= 0:
		b.bytes = append(b.bytes, p...)
	case !b.keepTail:
		return errTooMuchOutput
	default:
		all := append(b.bytes, p...)
		b.bytes = append(all[:0], all[excess:]...)
	}
	return nil
}

const (
	// readSize is the size of one read, onto the stack, in bytes. A CNI result has some hundred.
	readSize = 1 << 10
	// pipeSize is the capacity of a pipe (pipe(7)). A plugin that prints more than readSize is read
	// in pieces of it.
	pipeSize = 64 << 10
)

// pipeReader reads what a plugin writes to one of its streams. It never waits: the poller calls
// it when there is something to read.
type pipeReader struct {
	boundedBuffer
	// r is our end of the pipe; noFD once nothing more is read.
	r int
	// w is the plugin's end; noFD once only the plugin has it.
	w int
	// large is for reads of pipeSize; nil until the plugin prints that much.
	large []byte
}

// newPipeReader returns a reader whose w is for the plugin. Bytes that the buffer refuses end the
// reading.
func newPipeReader(b boundedBuffer) (pipeReader, error) {
	var ends [2]int
	// Not os.Pipe: registering the ends with the runtime's poller, which does not read them, costs
	// more than the reads of a call.
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return pipeReader{}, os.NewSyscallError("pipe2", err)
	}
	return pipeReader{boundedBuffer: b, r: ends[0], w: ends[1]}, nil
}

// read reads once, at most size bytes, and returns how many. There must be bytes or the end of
// the stream, or it blocks. At the end and after an error the stream is closed.
func (p *pipeReader) read(size int) (int, error) {
	var small [readSize]byte
	buffer := small[:]
	if p.large != nil {
		buffer = p.large
	}
	n, err := unix.Read(p.r, buffer[:min(size, len(buffer))])
	switch {
	case errors.Is(err, unix.EINTR):
		return 0, nil
	case err != nil || n == 0:
		p.closeReader()
		return 0, os.NewSyscallError("read", err)
	}
	if err := p.add(buffer[:n]); err != nil {
		p.closeReader()
		return n, err
	}
	if n == readSize && p.large == nil { // there may be more, and the plugin must not wait for us
		p.large = make([]byte, pipeSize)
	}
	return n, nil
}

// drain reads what is in the pipe now and closes the stream: a child of the plugin that
// continues to write must not block the call. It is called once, after the plugin has ended; all that the plugin
// wrote is then in the buffer or in the pipe.
func (p *pipeReader) drain() error {
	defer p.closeReader()
	if p.r == noFD {
		return nil
	}
	left, err := unix.IoctlGetInt(p.r, unix.TIOCINQ)
	for err == nil && left > 0 && p.r != noFD {
		var n int
		n, err = p.read(left)
		left -= n
	}
	return err
}

// closeWriter closes our copy of the plugin's end after the start of the plugin.
func (p *pipeReader) closeWriter() {
	if p.w != noFD {
		_ = unix.Close(p.w)
		p.w = noFD
	}
}

// closeReader closes our end.
func (p *pipeReader) closeReader() {
	if p.r != noFD {
		_ = unix.Close(p.r)
		p.r = noFD
	}
}

// close closes both ends, where the plugin was not started.
func (p *pipeReader) close() {
	p.closeReader()
	p.closeWriter()
}
