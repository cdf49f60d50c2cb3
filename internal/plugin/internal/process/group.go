package process

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pollInterval is the interval at which processes that cannot be waited for are checked.
	pollInterval = 10 * time.Millisecond
	// reapTimeout is how long the end of a process group is waited for after SIGKILL: only one
	// that hangs in the kernel takes longer.
	reapTimeout = 10 * pollInterval
)

// processGroup is the process group of a plugin, by the process ID of its leader.
type processGroup int

func (g processGroup) signal(sig unix.Signal) error { return unix.Kill(-int(g), sig) }

// terminateRest gives the other members of the group, which got SIGTERM with the leader, grace
// before SIGKILL. The leader must have been reaped: then a member of the group that is a child of
// ours was adopted.
func (g processGroup) terminateRest(grace time.Duration) {
	if g.waitEmpty(grace) {
		return
	}
	_ = g.signal(unix.SIGKILL)
	g.waitEmpty(reapTimeout)
}

// waitEmpty waits until the group has no member, at most for timeout. It reports whether it has
// none.
func (g processGroup) waitEmpty(timeout time.Duration) bool {
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		g.reapZombies()
		if g.signal(0) != nil {
			return true
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return false
		}
	}
}

// reapZombies reaps members that have ended and are children of this process. In a container this is
// process 1, which adopts them when their parent has ended. No other process would reap them: the
// zombies would stay, and the group with them.
func (g processGroup) reapZombies() {
	for {
		pid, err := unix.Wait4(-int(g), nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
