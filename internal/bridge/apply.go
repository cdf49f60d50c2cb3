package bridge

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// maxRequests is how many requests to the daemon run at the same time.
const maxRequests = 4

// apply executes the batches of a snapshot's plan in order, and publishes the slots that it acquires.
// Every write must find the version of the snapshot, or of the write before. A refused request to the
// daemon skips the later actions on its addresses only; an unavailable daemon skips the other requests
// to it, and is the error at the end. A write that fails ends the execution.
func (c *controller) apply(ctx context.Context, s snapshot) error {
	a, p := &application{controller: c, node: s.node, refused: map[netip.Addr]bool{}}, s.plan
	a.write(ctx, targetStatus, p.Unping)
	a.write(ctx, targetSpec, p.Pool)
	a.write(ctx, targetStatus, p.Marks)
	a.send(ctx, p.Restore)
	a.send(ctx, p.Release)
	a.write(ctx, targetStatus, p.Released)
	batch := c.state.batch
	if s.settings.MaxPods > 0 {
		batch = maxBatch // no pod waits for the first ones
	}
	a.acquireUntil = time.Now().Add(batch)
	a.send(ctx, p.Acquire)
	a.publish(ctx, s)
	return cmp.Or(a.writeErr, a.err)
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

// application is the execution of one plan.
type application struct {
	controller *controller
	// node is the CiliumNode of the snapshot, or after the last write.
	node *ciliumnode.Node
	// writeErr is the error of a write: nothing more is executed.
	writeErr error
	// mu guards the following, and the refusals of the controller's state.
	mu sync.Mutex
	// refused are the addresses of refused requests.
	refused map[netip.Addr]bool
	// acquired are the slots that the daemon has allocated, acquireUntil is when no more are acquired.
	acquired     []planner.Slot
	acquireUntil time.Time
	// err is the first error of a request that is not a refusal: no further request is sent.
	err error
}

// write writes a batch, without the actions on addresses of refused requests.
func (a *application) write(ctx context.Context, to target, batch []planner.Action) {
	batch = slices.DeleteFunc(slices.Clone(batch), func(x planner.Action) bool {
		return slices.ContainsFunc(x.IPs, func(ip netip.Addr) bool { return a.refused[ip] })
	})
	if len(batch) == 0 || a.writeErr != nil {
		return
	}
	c := a.controller
	n, err := c.node.patch(ctx, newPatch(a.node.Metadata.ResourceVersion, to, batch))
	if err != nil {
		a.writeErr = apiError(err)
		c.writable = c.writable && !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err)
		return
	}
	a.node, c.newest, c.taken = n, n, time.Now()
	o, _ := n.Observed()
	c.metrics.observe(o)
	c.metrics.progressed.set(time.Now())
	c.metrics.countHandshakes(batch)
	c.state.ask(batch)
	if publishes(batch) && !c.state.missingSince.IsZero() {
		c.metrics.publish.Observe(time.Since(c.state.missingSince).Seconds())
	}
	c.logStep(batch)
}

// publish publishes the acquired slots as another plan would. If the CiliumNode or other slots have
// changed since the snapshot, the next reconciliation does it.
func (a *application) publish(ctx context.Context, s snapshot) {
	cached, _ := a.controller.node.cached()
	if len(a.acquired) == 0 || len(s.plan.Restore)+len(s.plan.Release) > 0 || cached != nil && isNewer(cached, a.node) {
		return
	}
	o, _ := a.node.Observed()
	s.observed.Pool, s.observed.Used, s.observed.Handshakes = o.Pool, o.Used, o.Handshakes
	s.observed.Slots = append(s.observed.Slots, a.acquired...)
	plan := planner.New(s.observed, a.controller.state.remembered(s.observed, s.settings), s.settings)
	a.write(ctx, targetSpec, slices.DeleteFunc(plan.Pool, func(x planner.Action) bool { return x.Kind != planner.Publish }))
}

func publishes(batch []planner.Action) bool {
	return slices.ContainsFunc(batch, func(a planner.Action) bool { return a.Kind == planner.Publish })
}

// send sends the requests of a batch concurrently. They are of different slots.
func (a *application) send(ctx context.Context, batch []planner.Action) {
	if a.writeErr != nil {
		return
	}
	var group errgroup.Group
	group.SetLimit(maxRequests)
	executed := make([]bool, len(batch))
	for i, x := range batch {
		group.Go(func() error {
			executed[i] = a.execute(ctx, x)
			return nil
		})
	}
	_ = group.Wait() // the errors are in a.err
	var done []planner.Action
	for i, x := range batch {
		if executed[i] {
			done = append(done, x)
		}
	}
	if len(batch) > 0 && batch[0].Kind == planner.Acquire {
		a.controller.state.acquiredBatch(len(done), len(done) < len(batch) && time.Now().Before(a.acquireUntil))
	}
	a.controller.logStep(done)
}

// execute sends the requests of an action, one for each address, until one fails, and reports whether all
// succeeded. After a failure that is not a refusal nothing is sent.
func (a *application) execute(ctx context.Context, x planner.Action) bool {
	c, refusals, ips := a.controller, a.controller.state.refusals[x.Kind], x.IPs
	if x.Kind == planner.Acquire {
		ips = []netip.Addr{anyAddress}
	}
	for _, ip := range ips {
		a.mu.Lock()
		skip := a.err != nil || x.Kind == planner.Acquire && (refusals.of[ip].active() || !time.Now().Before(a.acquireUntil))
		a.mu.Unlock()
		if skip {
			return false
		}
		var slot planner.Slot
		var err error
		switch x.Kind {
		case planner.Acquire:
			start := time.Now()
			slot, err = c.allocator.acquire(ctx, x.Slot)
			c.metrics.acquire.Observe(time.Since(start).Seconds())
		case planner.Restore:
			err = c.allocator.restore(ctx, x.Slot, ip, x.Also)
		default:
			err = c.allocator.release(ctx, x.Slot, ip)
		}
		c.metrics.progressed.set(time.Now())
		c.metrics.countRequest(x.Kind, err)
		a.mu.Lock()
		if err != nil {
			a.fail(x, ip, err)
			a.mu.Unlock()
			return false
		}
		refusals.end(ip)
		if x.Kind == planner.Acquire {
			a.acquired = append(a.acquired, slot)
		}
		a.mu.Unlock()
	}
	return true
}

// fail records that the request for one address of an action has failed.
func (a *application) fail(x planner.Action, ip netip.Addr, err error) {
	if refused := (*failure)(nil); errors.As(err, &refused) && refused.refused {
		a.controller.state.refusals[x.Kind].add(ip, refused)
		log := a.controller.log.WithFields(logrus.Fields{"slot": x.Slot, "action": x.Kind}).WithError(err)
		if x.Kind == planner.Acquire {
			log.Debug("No address")
		} else {
			log.WithField("ipAddr", ip).Warn("Request refused")
		}
	} else if a.err == nil {
		a.err = err
	}
	for _, ip := range x.IPs {
		a.refused[ip] = true
	}
}

// target is the part of the CiliumNode that a write changes.
type target string

const (
	targetSpec   target = "spec"
	targetStatus target = "status"
)

// patch is a JSON merge patch (RFC 7386) of the pool or of the handshakes.
type patch struct {
	// version is the resourceVersion that the API server must find.
	version string
	target  target
	// entries are the new values by address; nil removes an entry.
	entries map[string]any
}

// subresource returns the arguments of a Patch.
func (p patch) subresource() []string {
	if p.target == targetStatus {
		return []string{"status"}
	}
	return nil
}

func newPatch(version string, to target, actions []planner.Action) patch {
	p := patch{version: version, target: to, entries: map[string]any{}}
	for _, a := range actions {
		var value any // Withdraw and Unmark
		switch a.Kind {
		case planner.Publish:
			// null removes the owner that suspends an entry.
			value = map[string]any{"resource": planner.EntryOf(a.Slot, false).Resource, "owner": nil}
		case planner.Suspend:
			e := planner.EntryOf(a.Slot, true)
			value = map[string]any{"resource": e.Resource, "owner": e.Owner}
		case planner.MarkForRelease:
			value = planner.MarkedForRelease
		case planner.MarkReleased:
			value = planner.Released
		}
		for _, ip := range a.IPs {
			p.entries[ip.String()] = value
		}
	}
	return p
}
