package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
)

// Leases are acquired ahead for containers (docs/operate/warm-leases.md).

// WarmPool is the supply of a pool with leases that are acquired ahead.
type WarmPool struct {
	// Wanted is --warm-leases, Ready how many no container has yet.
	Wanted, Ready int
	// Err is why there are too few; nil if there are enough, or they are being acquired.
	Err error
}

// Warm returns the supply of each configured pool, by its name; none without --warm-leases.
func (e *Engine) Warm() map[string]WarmPool {
	if e.opts.WarmLeases == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[string]WarmPool{}
	for _, name := range e.opts.Pools {
		p := e.pools[name]
		all[name] = WarmPool{Wanted: e.opts.WarmLeases, Ready: len(p.warm), Err: p.warmErr}
	}
	return all
}

func (e *Engine) countWarm(p *pool) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(p.warm)
}

// maxWarmDelay is the longest time after which leases are acquired again that could not be.
const maxWarmDelay = 30 * time.Second

// keepWarm acquires leases of a pool until there are as many as wanted, whenever there are less than three quarters of
// that, until Stop.
func (e *Engine) keepWarm(name string, p *pool) {
	low := max(1, e.opts.WarmLeases*3/4)
	for failures := 0; ; {
		for e.countWarm(p) >= low {
			select {
			case <-e.ctx.Done():
				return
			case <-p.belowWarm:
			}
		}
		attempts := e.opts.MaxProcesses
		if failures > 0 {
			attempts = 1 // shows whether the failure lasts
		}
		err := e.fillWarm(name, p, attempts)
		e.mu.Lock()
		p.warmErr = err
		e.mu.Unlock()
		if err == nil {
			failures = 0
			continue
		}
		failures++
		if !e.wait(min(backoff(failures), maxWarmDelay)) {
			return
		}
	}
}

// fillWarm acquires leases of a pool until there are as many as wanted. Until the first have succeeded it makes so many
// attempts concurrently, and then as many as there may be plugin processes.
func (e *Engine) fillWarm(name string, p *pool, attempts int) error {
	for ; ; attempts = e.opts.MaxProcesses {
		missing := e.opts.WarmLeases - e.countWarm(p)
		if missing <= 0 {
			return nil
		}
		if err := e.offersWarm(name); err != nil {
			return err
		}
		room := attachment.WarmLimit(e.opts.WarmLeases) - e.recordedWarm(name)
		if room <= 0 {
			return errors.New("leases that could not be acquired are not released yet")
		}
		var each errgroup.Group
		for range min(missing, room, attempts) {
			each.Go(func() error { return e.acquireWarm(name) })
		}
		if err := each.Wait(); err != nil {
			return err
		}
	}
}

// recordedWarm counts the leases of a pool that were acquired ahead, with those that could be neither acquired nor
// released: in an outage each attempt leaves one.
func (e *Engine) recordedWarm(pool string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, _ := e.position(attachment.Key{Pool: pool, Owner: attachment.WarmOwnerPrefix})
	for _, a := range e.sorted[i:] {
		if a.Pool != pool || !attachment.IsWarm(a.Owner) {
			break
		}
		n++
	}
	return n
}

// offersWarm returns why the pool has no leases that are acquired ahead.
func (e *Engine) offersWarm(pool string) error {
	n, err := e.plugin.Network(pool)
	if err != nil {
		return err
	}
	if !n.ServesContainers {
		return fmt.Errorf("network %q: container runtimes do not call plugin %s through the daemon (ipam.type is not delegated-ipam-cni), so it has no warm leases", n.Name, n.IPAMType)
	}
	inv, err := e.plugin.NewInvocation(e.ctx, n, "", "")
	if err != nil {
		return err
	}
	if inv.Profile.DependsOnPod() {
		return fmt.Errorf("network %q: what plugin %s returns may depend on the pod, so it has no warm leases; expected dependsOnPod \"nothing\" in its profile, and unique addresses (docs/reference/profiles.md)", n.Name, n.IPAMType)
	}
	return nil
}

// acquireWarm acquires one lease.
func (e *Engine) acquireWarm(pool string) error {
	op, err := e.background(e.ctx, attachment.Key{Pool: pool, Owner: attachment.WarmOwnerPrefix + uuid.NewString()[24:]})
	if err != nil {
		return err
	}
	defer op.end()
	op.Action = attachment.Acquire
	err = op.Operation.Acquire()
	op.Finish(err, false, false, backoff)
	if e.ctx.Err() == nil || err == nil {
		e.actionDone(op.Action, pool, op.families(), err)
		op.logOutcome(op.Rec.Addrs(), err, "Acquired a lease ahead", "Failed to acquire a lease ahead; it is retried")
	}
	return err
}

// maxReturned is more than the sandboxes of a node that have ended and that its runtime has not removed yet.
const maxReturned = 4096

// hasReturned reports whether a container had a lease that was acquired ahead, and nothing since. A runtime calls DEL when
// it stops a sandbox and again when it removes it: the second one needs no call of the plugin. One in progress may be an
// ADD, which a DEL waits for.
func (e *Engine) hasReturned(k attachment.Key) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, inProgress := e.position(k)
	return e.returned[k] && !inProgress
}
