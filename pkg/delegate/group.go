package delegate

import (
	"time"

	"golang.org/x/sys/unix"
)

// settle is how often a process that was signalled is looked at again.
const settle = 10 * time.Millisecond

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
// the leader, grace before SIGKILL.
func (g processGroup) endRest(grace time.Duration) {
	patience := time.NewTimer(grace)
	defer patience.Stop()
	tick := time.NewTicker(settle)
	defer tick.Stop()
	for g.signal(0) == nil {
		select {
		case <-tick.C:
		case <-patience.C:
			_ = g.signal(unix.SIGKILL)
			return
		}
	}
}
