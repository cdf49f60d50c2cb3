package bridge

import (
	"context"
	"errors"
	"net/netip"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// execute does a plan in order, and stops at the first failure. version is that
// of the CiliumNode that the plan was made from: every write must find it, or
// the one that the write before it has made.
func (c *controller) execute(ctx context.Context, version string, plan []planner.Action) error {
	for len(plan) > 0 {
		var step []planner.Action
		step, plan = nextStep(plan)
		of := partOf(step[0].Kind)
		if of == ofSidecar {
			again, err := c.ask(ctx, step[0])
			if again || err != nil {
				return err
			}
			c.say(step)
			continue
		}
		n, err := c.cluster.patch(ctx, newPatch(version, of, step))
		if err != nil {
			return ofAPI(err)
		}
		version = n.Metadata.ResourceVersion
		c.metrics.written(step)
		c.say(step)
	}
	return nil
}

// nextStep cuts off what is done in one go: one request to the sidecar, or all
// that one patch can hold. One write of several actions is safe where they are:
// nobody sees what would have been between them.
func nextStep(plan []planner.Action) (step, rest []planner.Action) {
	of, n := partOf(plan[0].Kind), 1
	for of != ofSidecar && n < len(plan) && partOf(plan[n].Kind) == of {
		n++
	}
	return plan[:n], plan[n:]
}

// ask does what the sidecar is asked for. again tells that it said no, that this
// is remembered, and that the rest of the plan is void.
func (c *controller) ask(ctx context.Context, a planner.Action) (again bool, err error) {
	switch a.Kind {
	case planner.Acquire:
		return c.acquire(ctx, a.Slot)
	case planner.Restore:
		return c.restore(ctx, a.Slot, a.IPs)
	default:
		for _, ip := range a.IPs {
			if err := c.addresses.free(ctx, ip); err != nil {
				return false, err
			}
		}
		return false, nil
	}
}

func (c *controller) acquire(ctx context.Context, slot int) (again bool, err error) {
	err = c.addresses.acquire(ctx, slot)
	switch {
	case errors.Is(err, errExhausted):
		c.metrics.acquisitions.WithLabelValues("exhausted").Inc()
		c.memory.exhaust(err)
		c.log.WithField("slot", slot).WithError(err).Debug("no address")
		return true, nil
	case err != nil:
		c.metrics.acquisitions.WithLabelValues("failed").Inc()
		return false, err
	}
	c.metrics.acquisitions.WithLabelValues("acquired").Inc()
	c.memory.exhausted = nil
	return false, nil
}

func (c *controller) restore(ctx context.Context, slot int, ips []netip.Addr) (again bool, err error) {
	for _, ip := range ips {
		err := c.addresses.restore(ctx, slot, ip)
		switch {
		case errors.Is(err, errRefused):
			c.metrics.acquisitions.WithLabelValues("not restored").Inc()
			c.memory.refuse(ip)
			c.log.WithFields(logrus.Fields{"slot": slot, "address": ip}).WithError(err).Warn("not restored")
			return true, nil
		case err != nil:
			c.metrics.acquisitions.WithLabelValues("failed").Inc()
			return false, err
		}
		c.metrics.acquisitions.WithLabelValues("restored").Inc()
		delete(c.memory.refused, ip)
	}
	return false, nil
}

// say writes one line for each kind of change.
func (c *controller) say(step []planner.Action) {
	for len(step) > 0 {
		kind, slots, ips := step[0].Kind, []int{}, []netip.Addr{}
		for len(step) > 0 && step[0].Kind == kind {
			if len(slots) == 0 || slots[len(slots)-1] != step[0].Slot {
				slots = append(slots, step[0].Slot)
			}
			ips = append(ips, step[0].IPs...)
			step = step[1:]
		}
		c.log.WithFields(logrus.Fields{"slots": slots, "addresses": ips}).Info(string(kind))
	}
}
