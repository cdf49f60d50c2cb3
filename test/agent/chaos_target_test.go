package agent

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// chaosTarget is a program that is killed repeatedly, and restarted as by a supervisor.
type chaosTarget struct {
	program *cluster.Program
	// meanUptime is the average time between two kills.
	meanUptime time.Duration
	// maxDowntime is the longest time until it is restarted.
	maxDowntime time.Duration
	// onStart is called with each new process.
	onStart func(context.Context, *cluster.Process)

	kills, exits int
}

// killRepeatedly kills and restarts the program until ctx ends, and leaves it running.
func (c *chaosTarget) killRepeatedly(ctx context.Context, random *rand.Rand) error {
	now := c.program.Current()
	for {
		select {
		case <-ctx.Done():
		case <-now.Done():
			c.exits++
		case <-time.After(randomDuration(random, 2*c.meanUptime)):
			c.program.End(syscall.SIGKILL)
			c.kills++
		}
		over := ctx.Err() != nil
		if over && now.Running() {
			return nil
		}
		sleep(ctx, randomDuration(random, c.maxDowntime))
		var err error
		if now, err = c.program.Start(); err != nil {
			return err
		}
		if c.onStart != nil {
			c.onStart(ctx, now)
		}
		if over {
			return nil
		}
	}
}

// randomDuration returns a random duration below limit.
func randomDuration(random *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(limit)))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
