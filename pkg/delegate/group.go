package delegate

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settle is how often a process that was signalled is looked at again.
	settle = 10 * time.Millisecond
	// burial is how long after SIGKILL its end is waited for: longer takes only one
	// that the kernel does not let go.
	burial = 10 * settle
)

// processGroup is the group of a plugin, by the process ID of its leader.
type processGroup int

func (g processGroup) signal(sig unix.Signal) error { return unix.Kill(-int(g), sig) }

// end sends SIGTERM, and after grace SIGKILL, until the leader has ended. A
// signal that cannot be sent any more finds nobody to be ended. What the group
// prints meanwhile is read, so that nobody is held up by a full pipe.
func (g processGroup) end(grace time.Duration, w *watch) {
	_ = g.signal(unix.SIGTERM)
	limit := time.Now().Add(grace)
	ended, err := w.until(limit)
	for ; err != nil; ended, err = w.until(limit) { // a stream that is full is read no more
	}
	if ended {
		return
	}
	_ = g.signal(unix.SIGKILL)
	for !ended {
		ended, _ = w.until(time.Now().Add(long))
	}
}

// endRest gives the group's other members, who were told to end together with
// the leader, grace before SIGKILL. The leader must have been waited for: from
// then on whoever of the group is a child of ours has lost its own parent.
func (g processGroup) endRest(grace time.Duration) {
	if g.gone(grace) {
		return
	}
	_ = g.signal(unix.SIGKILL)
	g.gone(burial)
}

// gone waits for the last member of the group to go, and no longer than patience.
func (g processGroup) gone(patience time.Duration) bool {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	tick := time.NewTicker(settle)
	defer tick.Stop()
	for {
		g.bury()
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

// bury waits for the members that have ended and are children of ours. In a
// container we are process 1, to whom they come when their parent has ended. Nobody
// else would wait for them: they would stay as zombies, and the group with them.
func (g processGroup) bury() {
	for {
		pid, err := unix.Wait4(-int(g), nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
