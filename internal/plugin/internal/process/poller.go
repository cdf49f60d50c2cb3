package process

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// maxPoll is the longest wait of one poll(2).
const maxPoll = time.Hour

// poller waits for the end of a plugin process and reads its output meanwhile, in one thread: a
// goroutine for each would wake up several threads for each of the few events of a call, and
// waking up is most of what a call costs us.
type poller struct {
	child
	streams [2]*pipeReader
}

// waitUntil returns true when the process has ended, and leaves it unreaped; or false at the
// deadline. The error is errTooMuchOutput.
func (p *poller) waitUntil(deadline time.Time) (ended bool, err error) {
	for !ended && err == nil {
		left := time.Until(deadline)
		if left <= 0 {
			return p.hasEnded(), nil
		}
		ended, err = p.poll(min(left, maxPoll))
	}
	return ended, err
}

// poll waits once, and reads the output that there is.
func (p *poller) poll(timeout time.Duration) (ended bool, err error) {
	if p.pidfd == noFD {
		timeout = min(timeout, pollInterval)
	}
	fds := [...]unix.PollFd{
		{Fd: int32(p.pidfd), Events: unix.POLLIN},
		{Fd: int32(p.streams[0].r), Events: unix.POLLIN},
		{Fd: int32(p.streams[1].r), Events: unix.POLLIN},
	}
	ms := (timeout + time.Millisecond - 1) / time.Millisecond
	if _, err := unix.Poll(fds[:], int(ms)); err != nil {
		if !errors.Is(err, unix.EINTR) {
			time.Sleep(pollInterval) // ENOMEM, which may pass
		}
		return p.hasEnded(), nil
	}
	for i, s := range p.streams {
		if fds[i+1].Revents == 0 {
			continue
		}
		// A hang-up without POLLIN is the end of the stream, or the last bytes: the kernel may
		// report the hang-up before them.
		if _, err := s.read(pipeSize); errors.Is(err, errTooMuchOutput) {
			return false, err
		}
	}
	return fds[0].Revents != 0 || p.pidfd == noFD && p.hasEnded(), nil
}
