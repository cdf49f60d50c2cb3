package delegate

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// chunk is how many bytes of output are read at once; a result has some hundred.
	// They are read onto the stack.
	chunk = 1 << 10
	// full is what a pipe holds (pipe(7)): as much is read at once of a plugin that
	// prints more than a chunk.
	full = 64 << 10
	// long is the longest wait of one poll(2).
	long = time.Hour
)

// watch waits for a plugin process and reads what it prints meanwhile, in one
// thread: a goroutine for each would wake up several threads for each of the few
// events of a call, and most of what a call costs us is waking up.
type watch struct {
	process
	streams [2]*capture
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
	fds := [...]unix.PollFd{
		{Fd: int32(w.handle), Events: unix.POLLIN},
		{Fd: int32(w.streams[0].r), Events: unix.POLLIN},
		{Fd: int32(w.streams[1].r), Events: unix.POLLIN},
	}
	ms := (patience + time.Millisecond - 1) / time.Millisecond
	if _, err := unix.Poll(fds[:], int(ms)); err != nil {
		if !errors.Is(err, unix.EINTR) {
			time.Sleep(settle) // no memory for the wait: there is by and by
		}
		return w.hasEnded(), nil
	}
	for i, s := range w.streams {
		if fds[i+1].Revents == 0 {
			continue
		}
		// Where the writers have gone this is the end, or what they wrote last: the
		// kernel may tell of their going before their words.
		if _, err := s.read(full); errors.Is(err, errTooMuch) {
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
