package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/nodeevents"
)

const (
	// resync is the interval of reconciliations without an event: the sidecar sends none.
	resync = 30 * time.Second
	// coalesce is how long the bridge waits for further events after one: pods come in bursts.
	coalesce = 100 * time.Millisecond
	// maxConflicts is how many conflicts in a row are retried without delay.
	maxConflicts = 5
	// recheck is the interval of the checks of the sidecar's node and plugin, and of the node's pods.
	recheck = 10 * time.Minute
)

// nodeClient reads and writes the node's CiliumNode. cached returns the object of the watch, nil for
// none, and whether the watch works. checkWriteAccess checks whether the CiliumNode may be written,
// without a write.
type nodeClient interface {
	cached() (n *ciliumnode.Node, watching bool)
	get(ctx context.Context) (*ciliumnode.Node, error)
	checkWriteAccess(ctx context.Context) error
	patch(ctx context.Context, p patch) (*ciliumnode.Node, error)
}

// slotAllocator is the sidecar (sidecarClient).
type slotAllocator interface {
	checkNode(ctx context.Context) (store string, err error)
	slots(ctx context.Context) ([]planner.Slot, error)
	acquire(ctx context.Context, slot int) (planner.Slot, error)
	restore(ctx context.Context, slot int, ip, also netip.Addr) error
	release(ctx context.Context, ip netip.Addr) error
}

// controller reconciles the sidecar and the CiliumNode, one reconciliation at a time.
type controller struct {
	log       logrus.FieldLogger
	node      nodeClient
	allocator slotAllocator
	// pods returns the pods of the node, none if they are not watched.
	pods func() nodePods
	// settings are the flags, of which the CiliumNode may set others.
	settings planner.Settings
	// allocatablePods reads how many pods the node can have, for settings.MaxPods; nil if --pre-allocate is
	// a number. allocatableErr is its last error.
	allocatablePods func(ctx context.Context) (int, error)
	allocatableErr  error
	state           *state
	problems        *nodeevents.Problems
	metrics         *metrics
	// newest is the CiliumNode that the last read or write returned, taken is when; lastRead is when it
	// was last read from the API server.
	newest          *ciliumnode.Node
	taken, lastRead time.Time
	// mustRead is set after a conflict or a failure: the cached CiliumNode may be outdated.
	mustRead bool
	// releasing reports whether a release was in progress at the last observation.
	releasing bool
	// checkedUntil is until when the sidecar counts as one of this node. After one of its failures it
	// may be another.
	checkedUntil time.Time
	// writable reports whether the CiliumNode may be written. After a refusal the right may have been
	// revoked.
	writable bool
	loop     *kube.Loop
	// check is when problems should be checked again before their Events, zero for none.
	check time.Time
}

func (c *controller) run(ctx context.Context) {
	defer c.problems.Stop()
	c.loop.Run(ctx, func() (time.Duration, bool) { return c.next(ctx) })
}

// wake makes the bridge reconcile after coalesce.
func (c *controller) wake() { c.loop.Wake(coalesce) }

// next reconciles, and returns when to do that again at the latest, and whether it has failed. If a
// problem should be checked before its Event, every request that waits for the end of its delay is
// repeated.
func (c *controller) next(ctx context.Context) (again time.Duration, failed bool) {
	if !c.check.IsZero() && !time.Now().Before(c.check) {
		c.state.repeatRequests()
	}
	err := c.reconcile(ctx)
	var e *failure
	if failed = err != nil && (!errors.As(err, &e) || !e.terminal()); !failed {
		again = c.state.untilNextExpiry(resync)
	}
	if c.check = c.problems.NextCheck(); !c.check.IsZero() && (failed || time.Until(c.check) < again) {
		again = time.Until(c.check)
	}
	return again, failed
}

// reconcile observes and executes until nothing is left to do.
func (c *controller) reconcile(ctx context.Context) error {
	executed, conflicts := map[string]bool{}, 0
	for {
		plan, err := c.reconcileOnce(ctx)
		actions := plan.Actions()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsConflict(err):
			c.metrics.conflicts.Inc()
			c.mustRead = true
			if conflicts++; conflicts <= maxConflicts {
				continue
			}
			err = fail(reasonAPIUnavailable, fmt.Errorf("%d conflicts in a row: %w", conflicts, err))
		case err == nil && len(actions) == 0:
			c.problems.Succeed()
			return nil
		case err == nil && executed[fmt.Sprint(actions)]:
			err = fail(reasonNoProgress, fmt.Errorf("executed before without effect: %v", actions))
		case err == nil:
			executed[fmt.Sprint(actions)], conflicts = true, 0
			continue
		}
		c.recordFailure(err)
		return err
	}
}

// recordFailure counts an error and sets its problem. If the API server may have been unavailable,
// every drain starts again: the agent could not write its used addresses.
func (c *controller) recordFailure(err error) {
	var e *failure
	if errors.As(err, &e) && e.ofSidecar() {
		c.checkedUntil = time.Time{}
	} else {
		c.mustRead = true
		c.state.resetDrain()
		c.metrics.silent.set(time.Time{})
	}
	if e == nil {
		c.log.WithError(err).Warn("Reconciliation failed")
		return
	}
	c.metrics.reconcileErrors.WithLabelValues(e.reason).Inc()
	switch e.reason {
	case reasonNotPermitted:
		c.writable = false
	case reasonNodeMissing:
		c.metrics.observe(planner.Observed{}) // its pool is deleted with it
	}
	c.problems.Fail(e.reason, e.err.Error())
}

func (c *controller) reconcileOnce(ctx context.Context) (planner.Plan, error) {
	c.metrics.progressed.set(time.Now())
	s, err := c.observe(ctx)
	if err != nil {
		return s.plan, err
	}
	c.metrics.observed.set(time.Now())
	c.state.planned(s.plan)
	var refusedSince time.Time
	if b := c.state.shortage(); b != nil {
		refusedSince = b.since
	}
	c.metrics.exhausted.set(refusedSince)
	c.metrics.silent.set(c.state.silentSince())
	c.metrics.observe(s.observed)
	c.problems.Observe(s.problems(c.state))
	if !c.writable && len(s.plan.Acquire) > 0 {
		// Without the right the slot would be held forever and never published.
		if err := c.node.checkWriteAccess(ctx); err != nil {
			return s.plan, apiError(err)
		}
		c.writable = true
	}
	return s.plan, c.apply(ctx, s)
}

// observe returns a snapshot. The CiliumNode is the newest one that needs no request; an outdated one
// is harmless, because every write has its version. A plan that withdraws or releases is made from a
// fresh one.
func (c *controller) observe(ctx context.Context) (snapshot, error) {
	s, fresh, err := c.observeOnce(ctx)
	if err == nil && !fresh && s.plan.Irreversible() {
		c.mustRead = true
		s, _, err = c.observeOnce(ctx)
	}
	return s, err
}

// observeOnce takes the CiliumNode and then lists the slots, in this order. A slot that was listed
// before, and that another bridge or gc withdrew and released in between, would look like a held one
// that is not published yet. A withdrawal after the CiliumNode was taken changes it, and the write of
// this snapshot's plan is a conflict. fresh reports whether the CiliumNode was read.
func (c *controller) observeOnce(ctx context.Context) (s snapshot, fresh bool, err error) {
	n, fresh, err := c.takeNode(ctx)
	if err != nil {
		return s, fresh, err
	}
	if mode := n.OtherMode(); mode != "" { // another component allocates its addresses
		return s, fresh, fail(reasonWrongMode, fmt.Errorf("CiliumNode %s has %s; expected one of ipam mode crd. Nothing was written. "+
			"Set ipam.mode=crd in Cilium; to remove the fields of an earlier mode, delete the CiliumNode once and restart the agent", n.Metadata.Name, mode))
	}
	s.node = n
	s.observed, s.malformed = n.Observed()
	c.state.observe(n.Metadata.UID, s.observed)
	if err := c.checkSidecar(ctx); err != nil {
		return s, fresh, err
	}
	if s.observed.Slots, err = c.allocator.slots(ctx); err != nil {
		return s, fresh, err
	}
	s.settings, s.allocatableErr = n.Settings(c.settings), c.allocatableErr
	c.state.observePods(&s.observed, c.pods())
	s.plan = c.plan(s)
	c.releasing = len(s.observed.Handshakes) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(s.observed.Pool)), planner.Entry.Suspended)
	return s, fresh, nil
}

// checkSidecar checks from time to time, because a status request costs a plugin call, that the sidecar
// serves this node, and whether the range of its plugin is the node's own.
func (c *controller) checkSidecar(ctx context.Context) error {
	if time.Now().Before(c.checkedUntil) {
		return nil
	}
	store, err := c.allocator.checkNode(ctx)
	if err != nil {
		return err
	}
	c.checkedUntil = time.Now().Add(recheck)
	switch {
	case c.allocatablePods == nil:
	case store == "":
		c.checkedUntil = time.Time{} // the sidecar waits for its configuration
	case store != storeOnNode:
		c.settings.MaxPods, c.allocatableErr = 0, nil
	default:
		pods, err := c.allocatablePods(ctx)
		if c.allocatableErr = err; err != nil {
			c.checkedUntil = time.Now().Add(resync)
			return nil
		}
		if c.settings.MaxPods != pods {
			c.log.WithField("pods", pods).Info("The plugin's range is the node's own: there is a slot for each pod that the node can have")
		}
		c.settings.MaxPods = pods
	}
	return nil
}

func (c *controller) plan(s snapshot) planner.Plan {
	return planner.New(s.observed, c.state.remembered(s.observed, s.settings), s.settings)
}

// takeNode returns the CiliumNode, and whether it was just read. It is never older than the one before.
func (c *controller) takeNode(ctx context.Context) (n *ciliumnode.Node, fresh bool, err error) {
	cached, watching := c.node.cached()
	// While a release is in progress the reads show that the API server is available to the agent.
	due := (!watching || c.releasing) && time.Since(c.lastRead) >= resync
	// A watch is late by less than resync. After etcd was restored, versions are older.
	late := cached != nil && c.newest != nil && isNewer(c.newest, cached) && time.Since(c.taken) >= resync
	if cached != nil && !c.mustRead && !due && !late {
		if c.newest != nil && !isNewer(cached, c.newest) {
			return c.newest, false, nil
		}
		return cached, false, nil
	}
	n, err = c.node.get(ctx)
	if err != nil {
		return nil, false, apiError(err)
	}
	c.newest, c.taken, c.lastRead, c.mustRead = n, time.Now(), time.Now(), false
	return n, true, nil
}

// isNewer reports whether a has a later version than b.
func isNewer(a, b *ciliumnode.Node) bool {
	order, err := resourceversion.CompareResourceVersion(a.Metadata.ResourceVersion, b.Metadata.ResourceVersion)
	return err == nil && order > 0
}

type snapshot struct {
	node     *ciliumnode.Node
	observed planner.Observed
	settings planner.Settings
	// malformed are the keys of the pool that are not addresses.
	malformed []string
	// allocatableErr is the reason why settings do not have the number of the node's pods; nil for none.
	allocatableErr error
	plan           planner.Plan
}
