package agent

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"
)

// victim is a program that is killed again and again, and started again, as
// its supervisor would.
type victim struct {
	program *program
	// lives is how long it lives on average.
	lives time.Duration
	// down is how long it is away at most.
	down time.Duration
	// born is called with each new life.
	born func(context.Context, *life)

	kills, ownEnds int
}

// hunt kills and starts until ctx ends; then it leaves the program running.
func (v *victim) hunt(ctx context.Context, random *rand.Rand) error {
	v.program.mu.Lock()
	now := v.program.life
	v.program.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
		case <-now.done:
			v.ownEnds++
		case <-time.After(upTo(random, 2*v.lives)):
			v.program.end(syscall.SIGKILL)
			v.kills++
		}
		over := ctx.Err() != nil
		if over && now.running() {
			return nil
		}
		pause(ctx, upTo(random, v.down))
		var err error
		if now, err = v.program.start(); err != nil {
			return err
		}
		if v.born != nil {
			v.born(ctx, now)
		}
		if over {
			return nil
		}
	}
}

// upTo is a random duration from 0 to below most.
func upTo(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(most)))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
