package bridge

import (
	"context"
	"errors"
	"net/netip"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// execute executes a plan in order, and stops at the first failure. version is the resourceVersion
// that the plan was made from: every write must find it, or that of the write before.
func (c *controller) execute(ctx context.Context, version string, plan []planner.Action) error {
	for len(plan) > 0 {
		var step []planner.Action
		step, plan = nextStep(plan)
		to := targetOf(step[0].Kind)
		if to == targetSidecar {
			replan, err := c.callSidecar(ctx, step[0])
			if replan || err != nil {
				return err
			}
			c.logStep(step)
			continue
		}
		n, err := c.node.patch(ctx, newPatch(version, to, step))
		if err != nil {
			return apiError(err)
		}
		version = n.Metadata.ResourceVersion
		c.metrics.countHandshakes(step)
		c.logStep(step)
	}
	return nil
}

// nextStep splits off one request to the sidecar, or the actions of one patch. A patch of several
// actions is safe in their order, because no reader sees a state between them.
func nextStep(plan []planner.Action) (step, rest []planner.Action) {
	to, n := targetOf(plan[0].Kind), 1
	for to != targetSidecar && n < len(plan) && targetOf(plan[n].Kind) == to {
		n++
	}
	return plan[:n], plan[n:]
}

// callSidecar executes an action at the sidecar. replan reports that the sidecar refused it, which is
// in the state now, and that the rest of the plan is void.
func (c *controller) callSidecar(ctx context.Context, a planner.Action) (replan bool, err error) {
	switch a.Kind {
	case planner.Acquire:
		return c.acquire(ctx, a.Slot)
	case planner.Restore:
		return c.restore(ctx, a.Slot, a.IPs)
	default:
		for _, ip := range a.IPs {
			if err := c.allocator.release(ctx, ip); err != nil {
				return false, err
			}
		}
		return false, nil
	}
}

func (c *controller) acquire(ctx context.Context, slot int) (replan bool, err error) {
	err = c.allocator.acquire(ctx, slot)
	switch {
	case errors.Is(err, errExhausted):
		c.metrics.acquisitions.WithLabelValues(outcomeExhausted).Inc()
		c.state.acquireFailed(err)
		c.log.WithField("slot", slot).WithError(err).Debug("No address")
		return true, nil
	case err != nil:
		c.metrics.acquisitions.WithLabelValues(outcomeFailed).Inc()
		return false, err
	}
	c.metrics.acquisitions.WithLabelValues(outcomeAcquired).Inc()
	c.state.acquireBackoff = nil
	return false, nil
}

func (c *controller) restore(ctx context.Context, slot int, ips []netip.Addr) (replan bool, err error) {
	for _, ip := range ips {
		err := c.allocator.restore(ctx, slot, ip)
		switch {
		case errors.Is(err, errRefused):
			c.metrics.acquisitions.WithLabelValues(outcomeRefused).Inc()
			c.state.restoreRefused(ip, err)
			c.log.WithFields(logrus.Fields{"slot": slot, "ipAddr": ip}).WithError(err).Warn("Restore refused")
			return true, nil
		case err != nil:
			c.metrics.acquisitions.WithLabelValues(outcomeFailed).Inc()
			return false, err
		}
		c.metrics.acquisitions.WithLabelValues(outcomeRestored).Inc()
		delete(c.state.restoreBackoffs, ip)
	}
	return false, nil
}

// logStep writes one line for each kind of action.
func (c *controller) logStep(step []planner.Action) {
	for len(step) > 0 {
		kind, slots, ips := step[0].Kind, []int{}, []netip.Addr{}
		for len(step) > 0 && step[0].Kind == kind {
			if len(slots) == 0 || slots[len(slots)-1] != step[0].Slot {
				slots = append(slots, step[0].Slot)
			}
			ips = append(ips, step[0].IPs...)
			step = step[1:]
		}
		c.log.WithFields(logrus.Fields{"slots": slots, "ipAddrs": ips}).Info(string(kind))
	}
}
