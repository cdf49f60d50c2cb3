package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	churners = 3
	// podsEach is how many pods one churner has at most.
	podsEach = 12
	// restBetween is how long a churner pauses at most when it has reached its goal.
	restBetween = 20 * time.Second
	// retryPause is between two attempts, as kubelet's back-off.
	retryPause = time.Second
)

// churn starts and deletes pods until ctx ends. What fails is tried again, as
// kubelet does: a failed sandbox is taken down, and the next attempt has another.
type churn struct {
	lab    *lab
	ledger *ledger

	mu     sync.Mutex
	failed map[string]int
	took   []time.Duration
}

// run returns the pods that are left.
func (c *churn) run(ctx context.Context, seed uint64) []*pod {
	var left []*pod
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range churners {
		all.Go(func() {
			pods := c.one(ctx, n, rand.New(rand.NewPCG(seed, uint64(n))))
			mu.Lock()
			defer mu.Unlock()
			left = append(left, pods...)
		})
	}
	all.Wait()
	return left
}

// one goes from one random number of pods to the next, so that the pool must
// grow and shrink, and replaces a random pod on the way.
func (c *churn) one(ctx context.Context, churner int, random *rand.Rand) []*pod {
	var mine []*pod
	goal := podsEach
	for n := 0; ctx.Err() == nil; n++ {
		switch {
		case len(mine) < goal:
			if p := (&pod{name: fmt.Sprintf("c%d-%d", churner, n)}); c.add(ctx, p) {
				mine = append(mine, p)
			}
		case len(mine) > 0:
			i := random.IntN(len(mine))
			c.drop(mine[i])
			mine = slices.Delete(mine, i, i+1)
		}
		if len(mine) == goal || random.IntN(8) == 0 {
			goal = random.IntN(podsEach + 1)
			pause(ctx, upTo(random, restBetween))
		}
	}
	return mine
}

// add tries until the pod runs; false if ctx ended before, and then nothing is left of it.
func (c *churn) add(ctx context.Context, p *pod) bool {
	begin := time.Now()
	for ctx.Err() == nil {
		// The attempt itself is not cut short: its outcome must be known.
		err := c.lab.addPod(context.WithoutCancel(ctx), p)
		if err == nil {
			c.ledger.began(p)
			c.note("ADD", nil, time.Since(begin))
			return true
		}
		c.note("ADD", err, 0)
		c.takeDown(p)
		pause(ctx, retryPause)
	}
	return false
}

// drop deletes a pod that runs.
func (c *churn) drop(p *pod) {
	c.ledger.ends(p.name)
	c.takeDown(p)
	for c.lab.kube.deletePod(context.Background(), p.name) != nil {
		pause(context.Background(), retryPause)
	}
}

// takeDown tries until the sandbox is gone.
func (c *churn) takeDown(p *pod) {
	for {
		err := c.lab.dropPod(context.Background(), p)
		if err == nil {
			return
		}
		c.note("DEL", err, 0)
		pause(context.Background(), retryPause)
	}
}

// note counts what failed, and keeps how long what succeeded took.
func (c *churn) note(verb string, err error, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed[verb]++
		fmt.Fprintf(c.lab.agent.log, "--- attempt failed: %v\n", err)
		return
	}
	c.took = append(c.took, took)
}
