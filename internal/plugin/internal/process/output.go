package process

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pipeSize is what a pipe holds by default, in bytes (pipe(7)).
const pipeSize = 64 << 10

// output keeps what a process prints to one of its streams.
type output struct {
	limit int
	// exceeded is closed when more than limit is printed. If it is nil, the last bytes are kept instead.
	exceeded chan struct{}
	bytes    []byte
	// pipe is where the output is read, once; write is the end for the process.
	pipe, write *os.File
	once        sync.Once
}

// open opens the pipe.
func (o *output) open() (err error) {
	o.pipe, o.write, err = os.Pipe()
	return err
}

// read reads until the end of the output, or until it exceeds the limit, and closes the pipe.
// A concurrent read waits for the same.
func (o *output) read() {
	o.once.Do(func() {
		defer o.pipe.Close()
		for buffer := make([]byte, 4<<10); ; {
			n, err := o.pipe.Read(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				o.readPresent(buffer)
			}
			if !o.add(buffer[:n]) || err != nil {
				return
			}
		}
	})
}

// readPresent reads what is in the pipe: a Read that begins after the deadline, because nothing ran in
// this process until then, does not look.
func (o *output) readPresent(buffer []byte) {
	_ = o.pipe.SetReadDeadline(time.Time{})
	raw, err := o.pipe.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		for read := 0; read < pipeSize; {
			n, err := unix.Read(int(fd), buffer)
			if n <= 0 && !errors.Is(err, unix.EINTR) || !o.add(buffer[:max(n, 0)]) {
				break
			}
			read += n
		}
		return true
	})
}

// end reads what a process that has ended printed. Its descendants may have the pipe, too: they are
// waited for at most outputDelay.
func (o *output) end() {
	_ = o.pipe.SetReadDeadline(time.Now().Add(outputDelay)) // fails if the pipe was read and closed
	o.read()
}

// add keeps bytes. It reports whether the output is within its limit.
func (o *output) add(p []byte) bool {
	if o.exceeded != nil && len(o.bytes)+len(p) > o.limit {
		close(o.exceeded)
		return false
	}
	o.bytes = append(o.bytes, p...)
	o.bytes = o.bytes[max(0, len(o.bytes)-o.limit):]
	return true
}
