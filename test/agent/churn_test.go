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
	churnWorkers = 3
	// podsEach is the maximum number of pods of a worker.
	podsEach = 12
	// maxPause is the maximum pause of a worker that has reached its number of pods.
	maxPause = 20 * time.Second
	// retryPause is the pause between two attempts, as in the kubelet's backoff.
	retryPause = time.Second
)

// churn adds and deletes pods until ctx ends. It repeats failed attempts as the kubelet does: it
// deletes the sandbox, and the next attempt has a new one.
type churn struct {
	testbed *testbed
	tracker *podTracker

	mu     sync.Mutex
	failed map[string]int
	took   []time.Duration
}

// run returns the remaining pods.
func (c *churn) run(ctx context.Context, seed uint64) []*pod {
	var left []*pod
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range churnWorkers {
		all.Go(func() {
			pods := c.runWorker(ctx, n, rand.New(rand.NewPCG(seed, uint64(n))))
			mu.Lock()
			defer mu.Unlock()
			left = append(left, pods...)
		})
	}
	all.Wait()
	return left
}

// runWorker moves between random numbers of pods, so that the pool must grow and shrink, and
// deletes random pods.
func (c *churn) runWorker(ctx context.Context, worker int, random *rand.Rand) []*pod {
	var mine []*pod
	goal := podsEach
	for n := 0; ctx.Err() == nil; n++ {
		switch {
		case len(mine) < goal:
			if p := (&pod{name: fmt.Sprintf("c%d-%d", worker, n)}); c.add(ctx, p) {
				mine = append(mine, p)
			}
		case len(mine) > 0:
			i := random.IntN(len(mine))
			c.drop(mine[i])
			mine = slices.Delete(mine, i, i+1)
		}
		if len(mine) == goal || random.IntN(8) == 0 {
			goal = random.IntN(podsEach + 1)
			sleep(ctx, randomDuration(random, maxPause))
		}
	}
	return mine
}

// add tries until the pod runs. It returns false if ctx ends before; then the pod is deleted: the bridge
// would keep an address for it.
func (c *churn) add(ctx context.Context, p *pod) bool {
	begin := time.Now()
	for ctx.Err() == nil {
		// An attempt is not cancelled, because its outcome must be known.
		err := c.testbed.addPod(context.WithoutCancel(ctx), p)
		if err == nil {
			c.tracker.added(p)
			c.record("ADD", nil, time.Since(begin))
			return true
		}
		c.record("ADD", err, 0)
		c.deleteSandbox(p)
		sleep(ctx, retryPause)
	}
	c.deletePod(p)
	return false
}

// drop deletes a running pod.
func (c *churn) drop(p *pod) {
	c.tracker.removed(p.name)
	c.deleteSandbox(p)
	c.deletePod(p)
}

// deletePod tries until the API server has no such pod.
func (c *churn) deletePod(p *pod) {
	for c.testbed.kube.deletePod(context.Background(), p.name) != nil {
		sleep(context.Background(), retryPause)
	}
}

// deleteSandbox tries until the sandbox is deleted.
func (c *churn) deleteSandbox(p *pod) {
	for {
		err := c.testbed.dropPod(context.Background(), p)
		if err == nil {
			return
		}
		c.record("DEL", err, 0)
		sleep(context.Background(), retryPause)
	}
}

// record counts a failed attempt, and keeps the duration of a successful one.
func (c *churn) record(verb string, err error, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed[verb]++
		c.testbed.agent.Note(fmt.Sprintf("attempt failed: %v", err))
		return
	}
	c.took = append(c.took, took)
}
