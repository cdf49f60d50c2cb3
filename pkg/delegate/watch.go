package delegate

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// chunk is how many bytes of output are read at once; a result has some hundred.
	chunk = 4 << 10
	// long is the longest wait of one poll(2).
	long = time.Hour
)

// watch waits for a plugin process and reads what it prints meanwhile, in one
// thread: a goroutine for each would wake up several threads for each of the few
// events of a call, and most of what a call costs us is waking up.
type watch struct {
	pid     int
	handle  int // pidfd_open(2); none where there are no such descriptors
	streams [2]*capture
}

// over calls wait with the process's handle.
func (w *watch) over(p *os.Process, wait func()) {
	err := p.WithHandle(func(handle uintptr) {
		w.handle = int(handle)
		wait()
	})
	if err != nil { // a kernel before 5.4, or a filter of system calls
		w.handle = none
		wait()
	}
}

// until returns when the leader of the group has ended, and leaves it unreaped:
// true; or when limit has passed: false. An error is what a stream's keeper said.
func (w *watch) until(limit time.Time) (ended bool, err error) {
	for !ended && err == nil {
		left := time.Until(limit)
		if left <= 0 {
			return w.hasEnded(), nil
		}
		ended, err = w.poll(min(left, long))
	}
	return ended, err
}

// poll waits once, and reads what there is.
func (w *watch) poll(patience time.Duration) (ended bool, err error) {
	if w.handle == none {
		patience = min(patience, settle)
	}
	fds := []unix.PollFd{{Fd: int32(w.handle), Events: unix.POLLIN}}
	for _, s := range w.streams {
		fds = append(fds, unix.PollFd{Fd: int32(s.r), Events: unix.POLLIN})
	}
	ms := (patience + time.Millisecond - 1) / time.Millisecond
	if _, err := unix.Poll(fds, int(ms)); err != nil {
		if !errors.Is(err, unix.EINTR) {
			time.Sleep(settle) // no memory for the wait: there is by and by
		}
		return w.hasEnded(), nil
	}
	for i, s := range w.streams {
		if fds[i+1].Revents == 0 {
			continue
		}
		if _, err := s.read(chunk); errors.Is(err, errTooMuch) {
			return false, err
		}
	}
	return fds[0].Revents != 0 || w.handle == none && w.hasEnded(), nil
}

// hasEnded asks without waiting, and leaves the process unreaped.
func (w *watch) hasEnded() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, w.pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}
