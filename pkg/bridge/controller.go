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

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/conditions"
	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

const (
	// resync is the interval of reconciliations without an event: the sidecar sends none.
	resync = 30 * time.Second
	// maxConflicts is how many conflicts in a row are retried without delay.
	maxConflicts = 5
)

// nodeClient reads and writes the node's CiliumNode. cached returns what the informer has, nil for
// nothing. checkWriteAccess reports whether the CiliumNode may be written, and writes nothing.
type nodeClient interface {
	cached() *ciliumnode.Node
	get(ctx context.Context) (*ciliumnode.Node, error)
	checkWriteAccess(ctx context.Context) error
	patch(ctx context.Context, p patch) (*ciliumnode.Node, error)
}

// slotAllocator is the sidecar (sidecarClient).
type slotAllocator interface {
	checkNode(ctx context.Context) error
	slots(ctx context.Context) ([]planner.Slot, error)
	acquire(ctx context.Context, slot int) error
	restore(ctx context.Context, slot int, ip netip.Addr) error
	release(ctx context.Context, ip netip.Addr) error
}

// controller reconciles the sidecar and the CiliumNode, one reconciliation after the other.
type controller struct {
	log        logrus.FieldLogger
	node       nodeClient
	allocator  slotAllocator
	settings   planner.Settings
	state      *state
	conditions *conditions.Conditions
	metrics    *metrics
	// sidecarChecked reports whether the sidecar is that of this node. After a failure it may be
	// another.
	sidecarChecked bool
	// writable reports whether the CiliumNode may be written. After a failure the right may be gone.
	writable bool
	// wake receives a value when the CiliumNode has changed.
	wake <-chan struct{}
}

// run reconciles until ctx ends.
func (c *controller) run(ctx context.Context) {
	defer c.conditions.Stop()
	retry := newRetryBackoff()
	for ctx.Err() == nil {
		err := c.reconcile(ctx)
		var e *reconcileError
		if err == nil || errors.As(err, &e) && e.terminal() {
			retry = newRetryBackoff()
			c.sleep(ctx, c.state.untilNextExpiry(resync), c.wake)
			continue
		}
		// An event does not end this delay: an unavailable sidecar would get a request for each.
		c.sleep(ctx, retry.Step(), nil)
	}
}

// sleep sleeps until a delay has passed, wake has a value, or a condition should be checked again
// before its Event. The check repeats every request that waits for the end of its backoff.
func (c *controller) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	check := c.conditions.NextCheck()
	if !check.IsZero() {
		d = min(d, time.Until(check))
	}
	sleep(ctx, d, wake)
	if !check.IsZero() && !time.Now().Before(check) {
		c.state.expireBackoffs()
	}
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

// reconcile observes and executes until nothing is left to do.
func (c *controller) reconcile(ctx context.Context) error {
	executed, conflicts := map[string]bool{}, 0
	for {
		plan, err := c.reconcileOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsConflict(err):
			c.metrics.conflicts.Inc()
			if conflicts++; conflicts <= maxConflicts {
				continue
			}
			err = &reconcileError{reasonAPIUnavailable, fmt.Errorf("%d conflicts in a row: %w", conflicts, err)}
		case err == nil && len(plan) == 0:
			c.conditions.Succeed()
			return nil
		case err == nil && executed[fmt.Sprint(plan)]:
			err = &reconcileError{reasonNoProgress, fmt.Errorf("executed before without effect: %v", plan)}
		case err == nil:
			executed[fmt.Sprint(plan)], conflicts = true, 0
			continue
		}
		c.recordFailure(err)
		return err
	}
}

// recordFailure counts an error and sets its condition. Every drain starts again: whatever failed, the
// API server may have been unavailable, too, and the agent unable to write to it.
func (c *controller) recordFailure(err error) {
	c.sidecarChecked, c.writable = false, false
	c.state.resetDrain()
	var e *reconcileError
	if errors.As(err, &e) {
		c.metrics.reconcileErrors.WithLabelValues(string(e.reason)).Inc()
		if e.reason == reasonNodeMissing {
			c.metrics.observe(planner.View{}) // its pool is deleted with it
		}
	}
	c.reportFailure(err)
}

// reconcileOnce observes once and executes the plan that follows. It returns the plan.
func (c *controller) reconcileOnce(ctx context.Context) ([]planner.Action, error) {
	s, err := c.observe(ctx)
	if err != nil {
		return nil, err
	}
	c.state.planned(s.view, s.plan)
	c.metrics.observe(s.view)
	c.observeConditions(s)
	plan := s.changes()
	if err := c.ensureWritable(ctx, plan); err != nil {
		return nil, err
	}
	return plan, c.execute(ctx, s.version, plan)
}

// ensureWritable fails if the plan acquires and the CiliumNode may not be written: the slot would be
// held forever and never published.
func (c *controller) ensureWritable(ctx context.Context, plan []planner.Action) error {
	acquires := slices.ContainsFunc(plan, func(a planner.Action) bool { return a.Kind == planner.Acquire })
	if c.writable || !acquires {
		return nil
	}
	if err := c.node.checkWriteAccess(ctx); err != nil {
		return apiError(err)
	}
	c.writable = true
	return nil
}

// observe returns a snapshot. The informer's cache is sufficient while it leaves nothing to do; a plan
// with writes is made from a CiliumNode that was just read.
func (c *controller) observe(ctx context.Context) (snapshot, error) {
	if !c.sidecarChecked {
		// Once, not each time: a status request costs a plugin call.
		if err := c.allocator.checkNode(ctx); err != nil {
			return snapshot{}, err
		}
		c.sidecarChecked = true
	}
	if n := c.node.cached(); n != nil && checkMode(n) == nil {
		slots, err := c.allocator.slots(ctx)
		if err != nil {
			return snapshot{}, err
		}
		if s := c.plan(n, slots); s.upToDate() {
			return s, nil
		}
	}
	return c.observeFresh(ctx)
}

// observeFresh reads the CiliumNode and then lists the slots, in this order. A slot that was listed
// before, and that another bridge or gc withdrew and released in between, would look like a held one
// that is not published yet. A withdrawal after the read changes the CiliumNode, and the write of this
// snapshot's plan is a conflict.
func (c *controller) observeFresh(ctx context.Context) (snapshot, error) {
	n, err := c.node.get(ctx)
	if err != nil {
		return snapshot{}, apiError(err)
	}
	if err := checkMode(n); err != nil {
		return snapshot{}, err
	}
	v, _ := n.View()
	c.state.observe(n.Metadata.UID, v)
	slots, err := c.allocator.slots(ctx)
	if err != nil {
		return snapshot{}, err
	}
	return c.plan(n, slots), nil
}

// plan makes a snapshot of what was observed and of the state.
func (c *controller) plan(n *ciliumnode.Node, slots []planner.Slot) snapshot {
	s := snapshot{version: n.Metadata.ResourceVersion}
	s.view, s.malformed = n.View()
	s.view.Slots = slots
	c.state.addTo(&s.view)
	s.plan = planner.Plan(s.view, c.settings)
	return s
}

// snapshot is one observation and the plan that follows from it.
type snapshot struct {
	// version is the resourceVersion of the CiliumNode.
	version string
	view    planner.View
	// malformed are the keys of the pool that are not addresses.
	malformed []string
	plan      []planner.Action
}

// changes returns the actions of the plan that change something.
func (s snapshot) changes() []planner.Action {
	return slices.DeleteFunc(slices.Clone(s.plan), func(a planner.Action) bool { return a.Kind == planner.Report })
}

// upToDate reports whether nothing is left to do and no release is in progress.
func (s snapshot) upToDate() bool {
	for _, e := range s.view.Pool {
		if e.Cordoned() {
			return false
		}
	}
	return len(s.changes()) == 0 && len(s.view.Handshakes) == 0
}
