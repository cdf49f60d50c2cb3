package process

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pollInterval is the interval at which a process group is checked for members.
	pollInterval = 10 * time.Millisecond
	// reapTimeout is how long the end of a process group is waited for after SIGKILL: only one
	// that hangs in the kernel takes longer.
	reapTimeout = 10 * pollInterval
)

func (p *Process) signalGroup(sig unix.Signal) error { return unix.Kill(-p.PID(), sig) }

// terminateGroup gives the rest of the group, which got SIGTERM with the process, grace before
// SIGKILL. The process must have been reaped: then a member of the group that is a child of ours was
// adopted.
func (p *Process) terminateGroup(grace time.Duration) {
	if p.waitGroupEmpty(grace) {
		return
	}
	_ = p.signalGroup(unix.SIGKILL)
	p.waitGroupEmpty(reapTimeout)
}

// waitGroupEmpty waits until the group has no member, at most for timeout. It reports whether it has
// none. It reaps members that are children of this process: in a container this is process 1, which
// adopts them when their parent has ended. No other process would reap them, and the zombies would
// keep the group.
func (p *Process) waitGroupEmpty(timeout time.Duration) bool {
	for end := time.Now().Add(timeout); ; time.Sleep(pollInterval) {
		for {
			pid, err := unix.Wait4(-p.PID(), nil, unix.WNOHANG, nil)
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if p.signalGroup(0) != nil {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
