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

// execute executes a plan in order. version is the resourceVersion that the plan was made from: every
// write must find it, or the version of the write before. A refused request to the sidecar skips the later
// actions on its addresses only; an unavailable sidecar skips the other requests to it, and is the
// error at the end. A write that fails ends the execution.
func (c *controller) execute(ctx context.Context, version string, plan []planner.Action) error {
	requests := &requests{controller: c, refused: map[netip.Addr]bool{}}
	for len(plan) > 0 {
		var step []planner.Action
		step, plan = nextStep(plan)
		to := targetOf(step[0].Kind)
		if to == targetSidecar {
			requests.send(ctx, step)
			continue
		}
		step = slices.DeleteFunc(step, func(a planner.Action) bool {
			return slices.ContainsFunc(a.IPs, func(ip netip.Addr) bool { return requests.refused[ip] })
		})
		if len(step) == 0 {
			continue
		}
		n, err := c.node.patch(ctx, newPatch(version, to, step))
		if err != nil {
			return apiError(err)
		}
		c.newest, c.taken, version = n, time.Now(), n.Metadata.ResourceVersion
		v, _ := n.View()
		c.metrics.observe(v)
		c.metrics.progressed.set(time.Now())
		c.metrics.countHandshakes(step)
		if plans(step, planner.Publish) && !c.state.missingSince.IsZero() {
			c.metrics.publish.Observe(time.Since(c.state.missingSince).Seconds())
		}
		c.logStep(step)
	}
	return requests.err
}

// nextStep splits off the actions on one target. A patch of several actions is safe in their order,
// because no reader sees a state between them. Requests to the sidecar are of different slots; those
// for any address follow those for a certain one, which they might take.
func nextStep(plan []planner.Action) (step, rest []planner.Action) {
	to, acquires, n := targetOf(plan[0].Kind), plan[0].Kind == planner.Acquire, 1
	for n < len(plan) && targetOf(plan[n].Kind) == to && (plan[n].Kind == planner.Acquire) == acquires {
		n++
	}
	return slices.Clone(plan[:n]), plan[n:]
}

func plans(plan []planner.Action, kinds ...planner.Kind) bool {
	return slices.ContainsFunc(plan, func(a planner.Action) bool { return slices.Contains(kinds, a.Kind) })
}

func (c *controller) logStep(step []planner.Action) {
	for len(step) > 0 {
		kind, slots, ips := step[0].Kind, []int{}, []netip.Addr{}
		for len(step) > 0 && step[0].Kind == kind {
			slots, ips = append(slots, step[0].Slot), append(ips, step[0].IPs...)
			step = step[1:]
		}
		c.log.WithFields(logrus.Fields{"action": string(kind), "slots": slices.Compact(slots), "ipAddrs": ips}).Info("Action completed")
	}
}

// requests executes the actions of one plan at the sidecar.
type requests struct {
	controller *controller
	// mu guards the following, and the backoffs of the controller's state.
	mu sync.Mutex
	// refused are the addresses of refused requests.
	refused map[netip.Addr]bool
	// err is the first error that is not a refusal: no further request is sent.
	err error
}

func (r *requests) send(ctx context.Context, step []planner.Action) {
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
	for i, a := range step {
		if executed[i] {
			done = append(done, a)
		}
	}
	if plans(done, planner.Acquire) {
		r.controller.state.acquiredBatch(len(done))
	}
	r.controller.logStep(done)
}

func (r *requests) execute(ctx context.Context, a planner.Action) bool {
	if a.Kind == planner.Acquire {
		return r.request(ctx, a, anyAddress)
	}
	return !slices.ContainsFunc(a.IPs, func(ip netip.Addr) bool { return !r.request(ctx, a, ip) })
}

// request sends the request for one address, unless another one has just failed, and reports whether it
// succeeded.
func (r *requests) request(ctx context.Context, a planner.Action, ip netip.Addr) bool {
	c, backoffs := r.controller, r.controller.state.backoffs[a.Kind]
	r.mu.Lock()
	skip := r.err != nil || a.Kind == planner.Acquire && backoffs[ip].active()
	r.mu.Unlock()
	if skip {
		return false
	}
	var err error
	switch a.Kind {
	case planner.Acquire:
		start := time.Now()
		err = c.allocator.acquire(ctx, a.Slot)
		c.metrics.acquire.Observe(time.Since(start).Seconds())
	case planner.Restore:
		err = c.allocator.restore(ctx, a.Slot, ip, a.Also)
	default:
		err = c.allocator.release(ctx, ip)
	}
	c.metrics.progressed.set(time.Now())
	c.metrics.countRequest(a.Kind, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(backoffs, ip)
		return true
	}
	if refused := (*failure)(nil); errors.As(err, &refused) && refused.refused {
		backoffs[ip] = backoffs[ip].extend(refused)
		log := c.log.WithFields(logrus.Fields{"slot": a.Slot, "action": a.Kind}).WithError(err)
		if a.Kind == planner.Acquire {
			log.Debug("No address")
		} else {
			log.WithField("ipAddr", ip).Warn("Request refused")
		}
	} else if r.err == nil {
		r.err = err
	}
	for _, ip := range a.IPs {
		r.refused[ip] = true
	}
	return false
}
