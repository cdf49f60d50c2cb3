package bridge

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// execute executes a plan in order. version is the resourceVersion that the plan was made from: every
// write must find it, or that of the write before. A refused request to the sidecar skips the later
// actions on its addresses only; an unavailable sidecar skips the other requests to it, and is the
// error at the end. A write that fails ends the execution.
func (c *controller) execute(ctx context.Context, version string, plan []planner.Action) error {
	requests := newRequests(c)
	for len(plan) > 0 {
		var step []planner.Action
		step, plan = nextStep(plan)
		if targetOf(step[0].Kind) == targetSidecar {
			requests.run(ctx, step)
			continue
		}
		step = requests.withoutRefused(step)
		if len(step) == 0 {
			continue
		}
		n, err := c.node.patch(ctx, newPatch(version, targetOf(step[0].Kind), step))
		if err != nil {
			return apiError(err)
		}
		c.newest, c.taken, version = n, time.Now(), n.Metadata.ResourceVersion
		v, _ := n.View()
		c.metrics.observe(v)
		c.metrics.progressed.set(time.Now())
		c.metrics.countHandshakes(step)
		if published(step) && !c.state.missingSince.IsZero() {
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
	return plan[:n], plan[n:]
}

// published reports whether a step publishes slots.
func published(step []planner.Action) bool {
	return slices.ContainsFunc(step, func(a planner.Action) bool { return a.Kind == planner.Publish })
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
		c.log.WithFields(logrus.Fields{"action": string(kind), "slots": slots, "ipAddrs": ips}).Info("Action completed")
	}
}
