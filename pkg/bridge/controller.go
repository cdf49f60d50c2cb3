package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

const (
	// resync is how often the bridge looks without being woken: what happens at the
	// sidecar wakes nobody.
	resync = 30 * time.Second
	// maxConflicts is how many conflicts in a row are answered by looking again at once.
	maxConflicts = 5
)

// cluster is the node's CiliumNode. get reads it afresh; cached is what was seen
// of it last, nil if nothing was; permitted asks whether it may be written, and
// writes nothing; patch writes.
type cluster interface {
	cached() *ciliumNode
	get(ctx context.Context) (*ciliumNode, error)
	permitted(ctx context.Context) error
	patch(ctx context.Context, p patch) (*ciliumNode, error)
}

// addresses is the sidecar. What its methods return is in sidecar.go.
type addresses interface {
	check(ctx context.Context) error
	slots(ctx context.Context) ([]planner.Slot, error)
	acquire(ctx context.Context, slot int) error
	restore(ctx context.Context, slot int, ip netip.Addr) error
	free(ctx context.Context, ip netip.Addr) error
}

// controller looks, decides and acts, one after the other.
type controller struct {
	log       logrus.FieldLogger
	cluster   cluster
	addresses addresses
	settings  planner.Settings
	memory    *memory
	notices   *notices
	metrics   *metrics
	// known tells that the sidecar is that of this node; after a failure it may be another.
	known bool
	// writable tells that the API server lets the CiliumNode be written; after a
	// failure it may do so no more.
	writable bool
	// wake gets a value when the CiliumNode has changed.
	wake <-chan struct{}
}

// run goes on until ctx ends.
func (c *controller) run(ctx context.Context) {
	retry := newRetry()
	for ctx.Err() == nil {
		err := c.settle(ctx)
		var t *trouble
		if err == nil || errors.As(err, &t) && t.waits() {
			retry = newRetry()
			sleep(ctx, c.memory.due(resync), c.wake)
			continue
		}
		// No event cuts this short: a sidecar that is away would be asked at each.
		sleep(ctx, retry.Step(), nil)
	}
}

// newRetry is the back-off after errors: from 1 s to 30 s, each up to half as
// long again so that nodes do not ask all at once.
func newRetry() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 30 * time.Second}
}

func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-t.C:
	}
}

// settle looks and acts until there is nothing left to do.
func (c *controller) settle(ctx context.Context) error {
	tried, conflicts := map[string]bool{}, 0
	for {
		plan, err := c.round(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsConflict(err):
			c.metrics.conflicts.Inc()
			if conflicts++; conflicts <= maxConflicts {
				continue
			}
			err = &trouble{apiUnavailable, fmt.Errorf("%d conflicts in a row: %w", conflicts, err)}
		case err == nil && len(plan) == 0:
			c.notices.recovered()
			return nil
		case err == nil && tried[fmt.Sprint(plan)]:
			err = &trouble{noProgress, fmt.Errorf("this was done before, and is still to be done: %v", plan)}
		case err == nil:
			tried[fmt.Sprint(plan)], conflicts = true, 0
			continue
		}
		c.fail(err)
		return err
	}
}

// fail tells of an error, once as long as it lasts, and counts it. No rest counts
// over it: nobody knows whether the API server was there all the time, be it the
// sidecar that could not be asked.
func (c *controller) fail(err error) {
	c.known, c.writable = false, false
	c.memory.doubt()
	var t *trouble
	if errors.As(err, &t) {
		c.metrics.failures.WithLabelValues(string(t.reason)).Inc()
		if t.reason == nodeMissing {
			c.metrics.observe(planner.View{}) // what it had is gone with it
		}
	}
	c.notices.also(err)
}

// round looks once, and does what follows. It returns what it set out to do.
func (c *controller) round(ctx context.Context) ([]planner.Action, error) {
	seen, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	c.memory.planned(seen.view, seen.plan)
	c.metrics.observe(seen.view)
	c.notices.now(seen.notices(c.memory))
	plan := seen.changes()
	if err := c.ensureWritable(ctx, plan); err != nil {
		return nil, err
	}
	return plan, c.execute(ctx, seen.version, plan)
}

// ensureWritable refuses to acquire what could not be published: it would be
// held for ever, and of use to nobody.
func (c *controller) ensureWritable(ctx context.Context, plan []planner.Action) error {
	acquires := slices.ContainsFunc(plan, func(a planner.Action) bool { return a.Kind == planner.Acquire })
	if c.writable || !acquires {
		return nil
	}
	if err := c.cluster.permitted(ctx); err != nil {
		return ofAPI(err)
	}
	c.writable = true
	return nil
}

// look sees all there is to see. What the informer has will do while there is
// nothing to do; whatever is written is decided from the CiliumNode as it is now.
func (c *controller) look(ctx context.Context) (sight, error) {
	if !c.known {
		// Not each time: its status costs a plugin call.
		if err := c.addresses.check(ctx); err != nil {
			return sight{}, err
		}
		c.known = true
	}
	if n := c.cluster.cached(); n != nil && n.checkMode() == nil {
		slots, err := c.addresses.slots(ctx)
		if err != nil {
			return sight{}, err
		}
		if seen := c.decide(n, slots); seen.idle() {
			return seen, nil
		}
	}
	return c.lookAfresh(ctx)
}

// lookAfresh lists the slots after it has read the CiliumNode, never before:
// what was listed, and then withdrawn and freed by another bridge or by gc, would
// look like a held address that is yet to be published. Whoever withdraws one
// after this has changed the CiliumNode, and the write ends with a conflict.
func (c *controller) lookAfresh(ctx context.Context) (sight, error) {
	n, err := c.cluster.get(ctx)
	if err != nil {
		return sight{}, ofAPI(err)
	}
	if err := n.checkMode(); err != nil {
		return sight{}, err
	}
	v, _ := n.view()
	c.memory.observe(n.Metadata.UID, v)
	slots, err := c.addresses.slots(ctx)
	if err != nil {
		return sight{}, err
	}
	return c.decide(n, slots), nil
}

// decide asks what follows from what is seen and remembered.
func (c *controller) decide(n *ciliumNode, slots []planner.Slot) sight {
	s := sight{version: n.Metadata.ResourceVersion}
	s.view, s.malformed = n.view()
	s.view.Slots = slots
	c.memory.complete(&s.view)
	s.plan = planner.Next(s.view, c.settings)
	return s
}

// sight is what was seen at one moment, and what follows from it.
type sight struct {
	version   string
	view      planner.View
	malformed []string
	plan      []planner.Action
}

// changes are the actions that change something.
func (s sight) changes() []planner.Action {
	return slices.DeleteFunc(slices.Clone(s.plan), func(a planner.Action) bool { return a.Kind == planner.Report })
}

// idle tells that there is nothing to do, and no handshake to follow.
func (s sight) idle() bool {
	for _, e := range s.view.Pool {
		if e.Fenced() {
			return false
		}
	}
	return len(s.changes()) == 0 && len(s.view.Release) == 0
}
