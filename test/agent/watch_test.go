package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// watch looks at the promises while things are killed.
type watch struct {
	lab    *lab
	ledger *ledger
	// grace is how long an agent that says it is well may still be busy with the
	// endpoints that it found. One that it has dropped never comes back.
	grace time.Duration

	// lives are those that life still follows.
	lives sync.WaitGroup

	mu sync.Mutex
	// restarts are agents that became well after a kill and were asked for every
	// running pod; restored is how long each took.
	restarts int
	restored []time.Duration
	// looks counts the comparisons of the books, withdrawn the addresses that have
	// left the pool; pool is how many it had at least and at most.
	looks, withdrawn int
	pool             [2]int
}

// life follows one life of the agent: once it is well, it must have every
// endpoint that ran before, and each pod must be reached. A life that ends too
// early proves nothing; the next one has to have them too.
func (w *watch) life(ctx context.Context, now *life) {
	before, begin := w.ledger.now(), time.Now()
	for agentOK(ctx) != nil {
		if !now.running() || ctx.Err() != nil {
			return
		}
		pause(ctx, 200*time.Millisecond)
	}
	err := eventually(ctx, w.grace, func() error {
		if !now.running() {
			return nil
		}
		return w.intact(ctx, w.ledger.still(before))
	})
	switch {
	case ctx.Err() != nil || !now.running():
	case err != nil:
		w.ledger.violate("after a restart of the agent: %v", err)
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.restarts++
		w.restored = append(w.restored, time.Since(begin))
	}
}

// intact is nil if the agent has a ready endpoint with its addresses for each of
// the pods, no address is of two endpoints, and every pod answers.
func (w *watch) intact(ctx context.Context, wanted []running) error {
	list, err := endpoints(ctx)
	if err != nil {
		return err
	}
	if err := shared(list); err != nil {
		w.ledger.violate("%v", err)
	}
	has := map[string]endpoint{}
	for _, e := range list {
		has[e.Pod] = e
	}
	var errs []error
	for _, r := range wanted {
		if e := has[podNamespace+"/"+r.name]; e.State != "ready" || !same(e.IPs, r.ips) {
			errs = append(errs, fmt.Errorf("there is no ready endpoint of %s with %v; the agent has %+v", r.name, r.ips, e))
		} else if err := reach(ctx, r.name, r.ips); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	// One of them may have been deleted since.
	if again := w.ledger.still(wanted); len(again) < len(wanted) {
		return w.intact(ctx, again)
	}
	return errors.Join(errs...)
}

// books looks at each moment at which all of them can be read.
func (w *watch) books(ctx context.Context) {
	var last books
	for ; ctx.Err() == nil; pause(ctx, time.Second) {
		before, err := w.lab.books(ctx)
		if err != nil {
			continue // the API server is away
		}
		after, err := w.lab.books(ctx)
		if err != nil {
			continue
		}
		if err := before.usedIsPublished(); err != nil {
			w.ledger.violate("%v", err)
		}
		for ip := range before.pool {
			// What is withdrawn is given back after it: it may be gone from the store when that is read.
			if _, published := after.pool[ip]; published && !before.store[ip] && !after.store[ip] {
				w.ledger.violate("%s was in the pool, and host-local did not hold it", ip)
			}
		}
		w.count(last, after)
		last = after
	}
}

// count takes note of how the pool has changed.
func (w *watch) count(last, now books) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looks == 0 {
		w.pool = [2]int{len(now.pool), len(now.pool)}
	}
	w.looks++
	w.pool = [2]int{min(w.pool[0], len(now.pool)), max(w.pool[1], len(now.pool))}
	for ip := range last.pool {
		if _, published := now.pool[ip]; !published {
			w.withdrawn++
		}
	}
}

// endpoints looks for an address in two endpoints whenever the agent answers.
func (w *watch) endpoints(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, time.Second) {
		list, err := endpoints(ctx)
		if err != nil {
			continue // the agent is away
		}
		if err := shared(list); err != nil {
			w.ledger.violate("%v", err)
		}
	}
}
