package bridge

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// maxRequests is how many requests to the sidecar run at the same time.
const maxRequests = 4

// requests executes the actions of one plan at the sidecar.
type requests struct {
	*controller
	// mu guards the following, and the controller's state.
	mu sync.Mutex
	// refused are the addresses of refused requests.
	refused map[netip.Addr]bool
	// err is the first error that is not a refusal: no further request is sent.
	err error
}

func newRequests(c *controller) *requests {
	return &requests{controller: c, refused: map[netip.Addr]bool{}}
}

// run executes actions on different slots.
func (r *requests) run(ctx context.Context, step []planner.Action) {
	var group errgroup.Group
	group.SetLimit(maxRequests)
	executed := make([]bool, len(step))
	for i, a := range step {
		group.Go(func() error {
			executed[i] = r.execute(ctx, a)
			return nil
		})
	}
	_ = group.Wait() // the errors are in r.err
	var done []planner.Action
	acquired := 0
	for i, a := range step {
		if !executed[i] {
			continue
		}
		done = append(done, a)
		if a.Kind == planner.Acquire {
			acquired++
		}
	}
	if acquired > 0 {
		r.state.acquiredBatch(acquired)
	}
	r.logStep(done)
}

// withoutRefused returns the actions of a step on addresses whose requests were not refused.
func (r *requests) withoutRefused(step []planner.Action) []planner.Action {
	return slices.DeleteFunc(slices.Clone(step), func(a planner.Action) bool {
		return slices.ContainsFunc(a.IPs, func(ip netip.Addr) bool { return r.refused[ip] })
	})
}

// execute executes an action, and reports whether it succeeded.
func (r *requests) execute(ctx context.Context, a planner.Action) bool {
	if a.Kind == planner.Acquire {
		return r.acquire(ctx, a.Slot)
	}
	for _, ip := range a.IPs {
		if r.stopped() || !r.request(ctx, a, ip) {
			return false
		}
	}
	return true
}

// stopped reports whether no further request is sent.
func (r *requests) stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err != nil
}

// acquire acquires a slot, unless another acquisition was just refused.
func (r *requests) acquire(ctx context.Context, slot int) bool {
	r.mu.Lock()
	skip := r.err != nil || r.state.acquireBackoff.active()
	r.mu.Unlock()
	if skip {
		return false
	}
	start := time.Now()
	err := r.allocator.acquire(ctx, slot)
	r.metrics.acquire.Observe(time.Since(start).Seconds())
	r.metrics.progressed.set(time.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	var refused *refusal
	switch {
	case err == nil:
		r.count(outcomeAcquired)
		r.state.acquireBackoff = nil
		return true
	case errors.As(err, &refused):
		outcome := outcomeFailed
		if refused.reason == reasonPoolExhausted {
			outcome = outcomeExhausted
		}
		r.count(outcome)
		r.state.acquireBackoff = r.state.acquireBackoff.extend(refused)
		r.log.WithField("slot", slot).WithError(err).Debug("No address")
	default:
		r.count(outcomeFailed)
		r.fail(err)
	}
	return false
}

// request restores or releases an address, and reports whether it succeeded.
func (r *requests) request(ctx context.Context, a planner.Action, ip netip.Addr) bool {
	backoffs := r.state.restoreBackoffs
	var err error
	if a.Kind == planner.Restore {
		err = r.allocator.restore(ctx, a.Slot, ip, a.Also)
	} else {
		backoffs = r.state.releaseBackoffs
		err = r.allocator.release(ctx, ip)
	}
	r.metrics.progressed.set(time.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	var refused *refusal
	switch {
	case err == nil && a.Kind == planner.Restore:
		r.count(outcomeRestored)
	case errors.As(err, &refused):
		if a.Kind == planner.Restore {
			r.count(outcomeRefused)
		}
		backoffs[ip] = backoffs[ip].extend(refused)
		r.log.WithFields(logrus.Fields{"slot": a.Slot, "ipAddr": ip, "action": a.Kind}).WithError(err).Warn("Request refused")
	case err != nil:
		if a.Kind == planner.Restore {
			r.count(outcomeFailed)
		}
		r.fail(err)
	}
	if err != nil {
		r.refuse(a.IPs)
		return false
	}
	delete(backoffs, ip)
	return true
}

// refuse skips the later actions on addresses.
func (r *requests) refuse(ips []netip.Addr) {
	for _, ip := range ips {
		r.refused[ip] = true
	}
}

// fail ends the requests.
func (r *requests) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *requests) count(outcome string) { r.metrics.acquisitions.WithLabelValues(outcome).Inc() }
