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
	"k8s.io/client-go/util/retry"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/nodeevents"
)

const (
	// resync is the interval of reconciliations without an event: the daemon sends none.
	resync = 30 * time.Second
	// coalesce is how long the bridge waits for further events after one: pods come in bursts.
	coalesce = 100 * time.Millisecond
	// recheck is the interval of the checks of the daemon's node and plugin, and of the node's pods.
	recheck = 10 * time.Minute
)

// nodeClient reads and writes the node's CiliumNode. cached returns the object of the watch, nil for
// none, and why the watch does not work, nil if it does. resumes is when plans are applied again after an
// outage, zero for never. checkWriteAccess checks whether the CiliumNode may be written,
// without a write.
type nodeClient interface {
	cached() (n *ciliumnode.Node, err error)
	resumes() time.Time
	get(ctx context.Context) (*ciliumnode.Node, error)
	checkWriteAccess(ctx context.Context) error
	patch(ctx context.Context, p patch) (*ciliumnode.Node, error)
}

// slotAllocator is the daemon (daemonClient).
type slotAllocator interface {
	checkNode(ctx context.Context) (served, error)
	slots(ctx context.Context, families []string) ([]planner.Slot, error)
	acquire(ctx context.Context, slot int) (planner.Slot, error)
	restore(ctx context.Context, slot int, ip, also netip.Addr) error
	release(ctx context.Context, slot int, ip netip.Addr) error
}

// controller reconciles the daemon and the CiliumNode, one reconciliation at a time.
type controller struct {
	log       logrus.FieldLogger
	node      nodeClient
	allocator slotAllocator
	// pods returns the pods of the node, none if they are not watched. podCount is their number at the start of the
	// reconciliation: each of its steps would otherwise write for the next pods of a burst.
	pods     func() nodePods
	podCount int
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
	// was last requested from the API server.
	newest          *ciliumnode.Node
	taken, lastRead time.Time
	// unavailable is the last failure if the API server caused it, until a CiliumNode is taken.
	unavailable error
	// mustRead is set after a conflict: the cached CiliumNode is outdated.
	mustRead bool
	// releasing reports whether a release was in progress at the last observation.
	releasing bool
	// checkedUntil is until when the daemon counts as one of this node. After one of its failures it
	// may be another.
	checkedUntil time.Time
	// families are those that the daemon served at the last check.
	families []string
	// writable reports whether the CiliumNode may be written. After a refused write the right may have
	// been revoked. A refused read is not enough: an API server that starts refuses all requests at first.
	writable bool
	loop     *kube.Loop
	// check is when problems should be checked again before their Events, zero for none.
	check time.Time
}

func (c *controller) run(ctx context.Context) {
	defer c.problems.Stop()
	c.loop.Run(ctx, func() (time.Duration, bool) { return c.reconcile(ctx) })
}

// wake makes the bridge reconcile after coalesce.
func (c *controller) wake() { c.loop.Wake(coalesce) }

// reconcile observes and executes until nothing is left to do. It returns when to do that again at the
// latest, and whether it has failed. If a problem should be checked before its Event, every request that
// waits for the end of its delay is repeated.
func (c *controller) reconcile(ctx context.Context) (again time.Duration, failed bool) {
	if !c.check.IsZero() && !time.Now().Before(c.check) {
		c.state.repeatRequests()
	}
	c.podCount, c.state.batch = c.pods().count, firstBatch
	var err error
	for executed := map[string]bool{}; err == nil; {
		var plan string
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			plan, err = c.step(ctx)
			if apierrors.IsConflict(err) {
				c.metrics.conflicts.Inc()
				c.mustRead = true
			}
			return err
		})
		if err == nil && plan == "" {
			break
		}
		if err == nil && executed[plan] {
			err = fail(reasonNoProgress, fmt.Errorf("executed before without effect: %v", plan))
		}
		executed[plan] = true
	}
	switch e := (*failure)(nil); {
	case ctx.Err() != nil:
		return 0, false
	case err == nil:
		c.problems.Succeed()
	default:
		c.recordFailure(err)
		failed = !errors.As(err, &e) || !e.terminal()
	}
	if !failed {
		again = resync
		if next := c.state.next; !next.IsZero() {
			again = min(again, max(time.Until(next), time.Nanosecond))
		}
	}
	if c.check = c.problems.NextCheck(); !c.check.IsZero() && (failed || time.Until(c.check) < again) {
		again = max(time.Until(c.check), time.Nanosecond)
	}
	return again, failed
}

// recordFailure counts an error and sets its problem. If the API server may have been unavailable,
// every drain starts again: the agent could not write its used addresses.
func (c *controller) recordFailure(err error) {
	if apierrors.IsConflict(err) {
		err = fail(reasonAPIUnavailable, fmt.Errorf("conflicts in a row: %w", err))
	}
	var e *failure
	if errors.As(err, &e) && e.ofDaemon() {
		c.checkedUntil = time.Time{}
	} else {
		c.unavailable = err
		c.state.resetDrain()
		c.metrics.silent.set(time.Time{})
	}
	if e == nil {
		c.log.WithError(err).Warn("Reconciliation failed")
		return
	}
	c.metrics.reconcileErrors.WithLabelValues(e.reason).Inc()
	if e.reason == reasonNodeMissing {
		c.metrics.observe(planner.Observed{}) // its pool is deleted with it
	}
	c.problems.Fail(e.reason, e.err.Error())
}

// step observes and executes one plan, and returns its actions; empty for none.
func (c *controller) step(ctx context.Context) (plan string, err error) {
	c.metrics.progressed.set(time.Now())
	s, err := c.observe(ctx)
	if err != nil {
		return "", err
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
	actions := s.plan.Actions()
	if len(actions) == 0 {
		return "", nil
	}
	// Agents write when the API server is available again, all at the same time. The bridges, which connect
	// one after the other, follow one after the other.
	if wait := time.Until(c.node.resumes()); wait > 0 {
		c.loop.Wake(wait)
		return "", nil
	}
	if !c.writable && len(s.plan.Acquire) > 0 {
		// Without the right the slot would be held forever and never published.
		if err := c.node.checkWriteAccess(ctx); err != nil {
			return "", apiError(err)
		}
		c.writable = true
	}
	return fmt.Sprint(actions), c.apply(ctx, s)
}

// observe returns a snapshot. It takes the CiliumNode, the newest one that needs no request, and then
// lists the slots, in this order. A slot that was listed before, and that another bridge or gc withdrew
// and released in between, would look like a held one that is not published yet. A withdrawal after the
// CiliumNode was taken changes it, and the write of this snapshot's plan is a conflict: every write has
// its version. A plan that withdraws or releases is made from a CiliumNode that was just read.
func (c *controller) observe(ctx context.Context) (s snapshot, err error) {
	for ; ; c.mustRead = true {
		var fresh bool
		s = snapshot{}
		if s.node, fresh, err = c.takeNode(ctx); err != nil {
			return s, err
		}
		if mode := s.node.OtherMode(); mode != "" { // another component allocates its addresses
			return s, fail(reasonWrongMode, fmt.Errorf("CiliumNode %s has %s; expected one of ipam mode crd. Nothing was written. "+
				"Set ipam.mode=crd in Cilium; to remove the fields of an earlier mode, delete the CiliumNode once and restart the agent", s.node.Metadata.Name, mode))
		}
		s.observed, s.malformed = s.node.Observed()
		c.state.observe(s.node.Metadata.UID, s.observed)
		if !time.Now().Before(c.checkedUntil) {
			if err := c.checkDaemon(ctx); err != nil {
				return s, err
			}
		}
		if s.observed.Slots, err = c.allocator.slots(ctx, c.families); err != nil {
			return s, err
		}
		s.settings, s.allocatableErr = s.node.Settings(c.settings), c.allocatableErr
		c.state.observePods(&s.observed, c.pods(), c.podCount)
		s.plan = planner.New(s.observed, c.state.remembered(s.observed, s.settings), s.settings)
		c.releasing = len(s.observed.Handshakes) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(s.observed.Pool)), planner.Entry.Suspended)
		if fresh || !s.plan.Irreversible() {
			return s, nil
		}
	}
}

// checkDaemon checks from time to time, because a status request costs a plugin call, that the daemon
// serves this node, in which families, and whether the range of its plugin is the node's own.
func (c *controller) checkDaemon(ctx context.Context) error {
	serves, err := c.allocator.checkNode(ctx)
	if err != nil {
		return err
	}
	c.families = serves.families
	c.checkedUntil = time.Now().Add(recheck)
	switch {
	case c.allocatablePods == nil:
	case serves.store == "":
		c.checkedUntil = time.Time{} // the daemon waits for its configuration
	case serves.store != storeOnNode:
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

// takeNode returns the CiliumNode, and whether it was just read. It is never older than the one before.
// While the API server is down the watch shows when it responds again. Only where watches are not permitted
// reads replace it.
func (c *controller) takeNode(ctx context.Context) (n *ciliumnode.Node, fresh bool, err error) {
	cached, watchErr := c.node.cached()
	lately := time.Since(c.lastRead) < resync
	refused := apierrors.IsForbidden(watchErr)
	switch {
	case watchErr != nil && !errors.Is(watchErr, errConnecting) && !refused:
		return nil, false, apiError(watchErr)
	case c.unavailable != nil && refused && lately:
		return nil, false, c.unavailable
	}
	// While a release is in progress the reads show that the API server is available to the agent.
	due := (refused || c.releasing) && !lately
	// A watch is late by less than resync. After etcd was restored, versions are older.
	late := cached != nil && c.newest != nil && isNewer(c.newest, cached) && time.Since(c.taken) >= resync
	if n = cached; n == nil || c.mustRead || due || late {
		c.lastRead = time.Now()
		if n, err = c.node.get(ctx); err != nil {
			return nil, false, apiError(err)
		}
		c.newest, c.taken, c.mustRead, fresh = n, time.Now(), false, true
	} else if c.newest != nil && !isNewer(n, c.newest) {
		n = c.newest
	}
	c.unavailable = nil
	return n, fresh, nil
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
