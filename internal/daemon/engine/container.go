package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Requests of a container runtime name a network, as its plugins do, and the container interface
// (docs/install/pods.md). Errors are as those of Allocate.

// AddContainer returns the attachment of a container interface, created if necessary.
func (e *Engine) AddContainer(ctx context.Context, network string, c call.Container) (Attachment, error) {
	return e.runContainer(ctx, attachment.Allocate, network, c, func(op *operation) error {
		if e.opts.Left(ctx) { // the DEL of its runtime may have been carried out before
			return attachment.NewError(attachment.Busy, "%s: the client has disconnected", op)
		}
		return op.Add()
	})
}

// DelContainer releases the attachment of a container interface. Without one it runs the plugin's DEL.
func (e *Engine) DelContainer(ctx context.Context, network string, c call.Container) (Attachment, error) {
	return e.runContainer(ctx, attachment.Release, network, c, (*operation).Del)
}

// CheckContainer runs the plugin's CHECK for a container interface.
func (e *Engine) CheckContainer(ctx context.Context, network string, c call.Container) (Attachment, error) {
	return e.runContainer(ctx, attachment.Check, network, c, (*operation).Check)
}

func (e *Engine) runContainer(ctx context.Context, action attachment.Action, network string, c call.Container, do func(*operation) error) (Attachment, error) {
	k, err := e.containerKey(network, attachment.ContainerOwner(c.ContainerID, c.IfName), action == attachment.Release)
	// The plugin has never had this ID, and the ID of a sandbox is never used again.
	if err == nil && action == attachment.Release && call.OfSandbox(c.Args, c.ContainerID) && e.hasReturned(k) {
		e.actionDone(action, k.Pool, e.requestedFamilies(""), nil)
		return Attachment{Record: attachment.Record{Owner: k.Owner, Pool: k.Pool, ContainerID: c.ContainerID}}, nil
	}
	return e.run(ctx, k, err, request{action: action, families: e.requestedFamilies(""), container: &c, do: do})
}

// DelLeft is DelContainer for a DEL of a runtime that was left at an earlier time, and reports whether it was
// carried out. While the configured network does not serve containers, as after a rollback, the plugin itself may
// have added the container ID since, unless it is a sandbox's, which is never used again: a record is released
// unless that can be seen, and without one nothing is done.
func (e *Engine) DelLeft(ctx context.Context, network string, c call.Container, at time.Time) (done bool, err error) {
	if pool, n := e.configured(network); pool == "" || n.ServesContainers || call.OfSandbox(c.Args, c.ContainerID) {
		_, err := e.DelContainer(ctx, network, c)
		return true, err
	}
	k, recorded := e.recorded(network, attachment.ContainerOwner(c.ContainerID, c.IfName))
	if !recorded {
		return false, nil
	}
	return e.ReleaseContainer(ctx, k, func(a Attachment) bool { return a.Created.Before(at) })
}

// recorded returns the key of the record that a container interface has in a network, if there is one.
func (e *Engine) recorded(network, owner string) (k attachment.Key, ok bool) {
	for pool := range e.pools {
		if r, ok := e.Record(pool, owner); ok && r.Network == network {
			return attachment.Key{Pool: pool, Owner: owner}, true
		}
	}
	return attachment.Key{}, false
}

// containerKey returns the key of a container interface in a network: that of its record, or else in the
// pool of the network. A DEL without a record needs no pool that serves containers: after a rollback the
// plugin may have what was added without the daemon, and the runtime does not repeat a spooled DEL.
func (e *Engine) containerKey(network, owner string, del bool) (attachment.Key, error) {
	if k, ok := e.recorded(network, owner); ok {
		return k, nil
	}
	if id := attachment.RuntimeID(owner); containerid.Match(id) { // its DEL would release the address of an owner
		return attachment.Key{}, attachment.NewError(attachment.Forbidden, "container ID %q is one of the daemon's own; expected one of a container runtime", id)
	}
	pool, _, err := e.containerNetwork(network)
	if err != nil && del {
		pool, _ = e.configured(network)
	}
	if pool != "" {
		err = nil
	}
	return attachment.Key{Pool: pool, Owner: owner}, err
}

// configured returns a network as it is configured now, and its pool; empty for none.
func (e *Engine) configured(network string) (pool string, n call.Network) {
	for _, pool := range e.opts.Pools {
		if n, err := e.plugin.Network(pool); err == nil && n.Name == network {
			return pool, n
		}
	}
	return "", call.Network{}
}

// containerNetwork returns the pool and the network of a container runtime's request, or why it is not served.
func (e *Engine) containerNetwork(name string) (string, call.Network, error) {
	var served []string
	var errs []error
	for _, pool := range e.opts.Pools {
		n, err := e.plugin.Network(pool)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("pool %q: %w", pool, err))
		case n.ServesContainers && n.Name == name:
			return pool, n, nil
		case n.ServesContainers:
			served = append(served, n.Name)
		}
	}
	if len(errs) > 0 { // one of them may be its pool
		return "", call.Network{}, &attachment.Error{Kind: attachment.Failed, RetryAfter: retryAfter, Err: fmt.Errorf("network %q: %w", name, errors.Join(errs...))}
	}
	slices.Sort(served)
	return "", call.Network{}, attachment.NewError(attachment.NotFound, "network %q is not served for containers; expected one of: [%s], whose configurations have ipam.type delegated-ipam-cni", name, strings.Join(served, ", "))
}

// GC releases the attachments of the network's container interfaces that are not valid and were created
// before the call, and calls the plugin with all attachments that are. Other owners' are valid.
func (e *Engine) GC(ctx context.Context, network string, valid []call.Attachment) error {
	began := time.Now()
	pool, n, err := e.containerNetwork(network)
	if err != nil {
		return err
	}
	owners := map[string]bool{}
	for _, v := range valid {
		owners[attachment.ContainerOwner(v.ContainerID, v.IfName)] = true
	}
	var stale []attachment.Key
	e.each(func(a *entry) {
		if attachment.OfContainer(a.Owner) && a.Rec.Network == network && !owners[a.Owner] {
			stale = append(stale, a.Key)
		}
	})
	ended := func(a Attachment) bool { return a.Created.Before(began) && a.LastUsed.Before(began) }
	var errs []error
	for _, k := range stale {
		_, err := e.ReleaseContainer(ctx, k, ended)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, e.pluginGC(ctx, pool, n, valid))...)
}

// ReleaseContainer releases the attachment of a container interface that does not exist any more, and reports
// whether it did. ended decides that again when nothing else works on the attachment: it may have been added
// again since.
func (e *Engine) ReleaseContainer(ctx context.Context, k attachment.Key, ended func(Attachment) bool) (released bool, err error) {
	var begun atomic.Bool
	_, err = e.run(ctx, k, nil, request{action: attachment.Cleanup, families: e.requestedFamilies(""), do: func(op *operation) error {
		e.mu.Lock()
		a := op.entry
		ends := a.listed() && ended(a.view())
		e.mu.Unlock()
		if !ends {
			return nil
		}
		begun.Store(true)
		return op.Del()
	}})
	return begun.Load(), err
}

// pluginGC runs the plugin's GC. No other call of the pool runs meanwhile, so that the list is complete.
func (e *Engine) pluginGC(ctx context.Context, pool string, n call.Network, valid []call.Attachment) error {
	inv, err := e.plugin.NewInvocation(ctx, n, "", "")
	if err != nil || !inv.HasGC() || n.DisableGC {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.Budget)
	defer cancel()
	p := e.pools[pool]
	all := map[*semaphore.Weighted]int64{p.processes[ofRuntime][0]: int64(e.opts.MaxProcesses)}
	if e.opts.MaxProcesses == 1 {
		all[p.background[0]] = 1
	}
	for s, slots := range all {
		if err := s.Acquire(ctx, slots); err != nil {
			return &attachment.Error{Kind: attachment.Busy, RetryAfter: retryAfter, Err: fmt.Errorf("network %q: the plugin's GC waited for other calls for too long: %w", n.Name, err)}
		}
		defer s.Release(slots)
	}
	listed := map[call.Attachment]bool{}
	for _, v := range valid {
		listed[v] = true
	}
	e.mu.Lock() // throughout, because a lease that was acquired ahead may change its owner
	for _, a := range e.sorted {
		if !a.listed() || a.Rec.State == attachment.Releasing && attachment.OfContainer(a.Owner) {
			continue
		}
		for _, recorded := range a.Rec.Invocations { // of other networks, too: not every plugin keeps them apart
			listed[call.Attachment{ContainerID: recorded.ContainerID, IfName: recorded.IfName}] = true
		}
	}
	e.mu.Unlock()
	return e.plugin.GC(ctx, inv, slices.Collect(maps.Keys(listed)))
}
