package delegate

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// settle is how often a process that was signalled is looked at again.
const settle = 10 * time.Millisecond

// processGroup is the group of a plugin, by the process ID of its leader.
type processGroup int

// waitLeader returns when the leader has ended, and leaves it unreaped.
func (g processGroup) waitLeader() {
	for {
		err := unix.Waitid(unix.P_PID, int(g), nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (g processGroup) signal(sig unix.Signal) error { return unix.Kill(-int(g), sig) }

// end sends SIGTERM, and after grace SIGKILL, until the leader has ended. A
// signal that cannot be sent any more finds nobody to be ended.
func (g processGroup) end(grace time.Duration, exited <-chan struct{}) {
	_ = g.signal(unix.SIGTERM)
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-exited:
	case <-patience.C:
		_ = g.signal(unix.SIGKILL)
		<-exited
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
