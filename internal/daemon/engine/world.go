package engine

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// world is the world of an operation's attachment.
type world struct{ *operation }

var _ attachment.World = world{}

func (world) Now() time.Time { return time.Now() }

func (world) Unique() string { return uuid.NewString() }

func (w world) Write(r attachment.Record, instead ...string) error {
	if err := w.engine.journal.Write(r, instead...); err != nil {
		return err
	}
	var before attachment.Record
	if w.entry.Rec != nil && (len(instead) == 0 || r.Owner != w.Owner) { // otherwise it has been another owner's
		before = *w.entry.Rec
	}
	if r.Owner != w.Owner { // the plugin keeps the addresses for that owner
		w.engine.opts.Changed(before, attachment.Record{State: attachment.Cooldown})
		before = attachment.Record{}
	}
	w.engine.opts.Changed(before, r)
	return nil
}

func (w world) Remove(pool string, owners ...string) error {
	err := w.engine.journal.Remove(pool, owners...)
	if err == nil && w.entry.Rec != nil {
		w.engine.opts.Changed(*w.entry.Rec, attachment.Record{})
	}
	return err
}

func (w world) Network() (call.Network, error) { return w.engine.plugin.Network(w.Pool) }

func (w world) Outside(ip netip.Addr) (bool, error) {
	switch w.engine.plugin.Range(w.Pool, []netip.Addr{ip}) {
	case call.RangeOutside:
		return true, nil
	case call.RangeUnconfigured:
		return false, w.engine.plugin.Configured(w.Pool)
	}
	return false, nil
}

func (w world) Invocation(verb string, n call.Network, id string, c *call.Container) (call.Invocation, error) {
	if c == nil {
		return w.engine.plugin.NewInvocation(w.callCtx(), n, id, w.Owner)
	}
	inv, err := w.engine.plugin.ContainerInvocation(w.callCtx(), n, *c)
	// Before a record is written, as for other owners. A DEL or CHECK is the plugin's to refuse.
	if err == nil && verb == call.VerbAdd {
		err = w.engine.plugin.CheckConfig(w.callCtx(), n, inv)
	}
	if err == nil && verb == call.VerbAdd && inv.Profile.Key() == profile.KeyedByContainer {
		if other, ok := w.engine.sibling(w.Key, n.Name); ok {
			err = attachment.NewError(attachment.Failed, "%s: plugin %s knows what it has allocated by the container ID alone, and %s has addresses in network %q: the DEL of one interface would release those of the other; expected one interface of a container in this network", w, inv.Plugin, other, n.Name)
		}
	}
	return inv, err
}

func (w world) WithContainer(inv call.Invocation, c call.Container) (call.Invocation, error) {
	return w.engine.plugin.WithContainer(inv, c)
}

func (w world) Call(verb string, inv call.Invocation) (call.Result, error) {
	c := call.Call{Invocation: inv, Owner: w.Owner, Pool: w.Pool}
	switch verb {
	case call.VerbAdd:
		c.Taken = func(ip netip.Addr) bool {
			_, taken := w.Conflict(inv.Network, []netip.Addr{ip})
			return taken.IsValid()
		}
		return w.engine.plugin.Add(w.callCtx(), c)
	case call.VerbDel:
		return call.Result{}, w.engine.plugin.Del(w.callCtx(), c)
	default:
		return call.Result{}, w.engine.plugin.Check(w.callCtx(), c)
	}
}

func (w world) Holds(inv call.Invocation, addrs []netip.Addr) (bool, error) {
	return w.engine.plugin.Holds(inv, addrs)
}

func (w world) Lookup(inv call.Invocation) (call.Result, error) {
	return w.engine.plugin.Lookup(w.callCtx(), inv)
}

// Publish replaces the status that readers see, and its addresses in the index.
func (w world) Publish(s attachment.Status) {
	e, a := w.engine, w.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publish(a, s)
}

// AssignID rejects a container ID that another attachment has (docs/design/how-it-works.md, Identity).
func (w world) AssignID(id string) error {
	e, a := w.engine, w.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if other, ok := e.byID[id]; ok && other != a {
		return attachment.NewError(attachment.Failed, "%s: its container ID %s belongs to %s already; release it there first", a, id, other)
	}
	if a.ID != id {
		delete(e.byID, a.ID)
	}
	e.byID[id] = a
	return nil
}

func (w world) Conflict(network string, ips []netip.Addr) (attachment.Other, netip.Addr) {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	other, taken := w.engine.index.conflict(w.entry, network, ips, false)
	if other == nil {
		other, taken = w.engine.index.conflict(w.entry, network, ips, true)
	}
	return other.other(), taken
}

func (w world) Reserve(network string, ips []netip.Addr) (attachment.Other, netip.Addr) {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	other, taken := w.engine.index.conflict(w.entry, network, ips, false)
	if other == nil {
		w.engine.index.replaceReserved(w.entry, network, ips)
	}
	return other.other(), taken
}

func (w world) Spare() []attachment.Other {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	return slices.Concat(w.oldest(w.entry.shared.cooldown), w.oldest(w.entry.shared.warm))
}

// oldest returns the other entries of a set, the oldest first; entries.mu is held.
func (w world) oldest(set map[*entry]bool) []attachment.Other {
	var all []attachment.Other
	for a := range set {
		if a != w.entry {
			all = append(all, attachment.Other{Key: a.Key, Lost: a.Lost, Record: a.Rec})
		}
	}
	slices.SortFunc(all, func(a, b attachment.Other) int { return a.Record.Changed.Compare(b.Record.Changed) })
	return all
}

// Keeper looks at each, which is rare: few plugins are keyed by the pod or the container.
func (w world) Keeper(inv call.Invocation) (attachment.Other, bool) {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	for _, a := range w.engine.sorted {
		if a != w.entry && a.Pool == w.Pool && a.Rec.Keeps(inv) {
			return a.other(), true
		}
	}
	return attachment.Other{}, false
}

// settleWait is how long Settle waits for another operation, such as that of a start, which verifies it.
const settleWait = 2 * time.Second

// Settle uses the plugin process of this operation. The holder of the other lock may wait for a process.
func (w world) Settle(o attachment.Other, work attachment.Work, wait bool) bool {
	e, limit := w.engine, time.Duration(0)
	if work == attachment.Doubted {
		e.mu.Lock()
		defer e.mu.Unlock()
		if i, ok := e.position(o.Key); ok {
			other := e.sorted[i]
			other.doubted = true
			if other.Failures == 0 { // otherwise its retry verifies it
				w.doubted = append(w.doubted, other)
			}
		}
		return true
	}
	if wait {
		limit = settleWait
	}
	ctx, cancel := context.WithTimeout(e.ctx, limit)
	defer cancel()
	e.mu.Lock()
	a, err := e.ref(o.Key, User{}) // also while the engine is stopping: the lease that is given has no other record
	e.mu.Unlock()
	if err != nil {
		return false
	}
	other, err := e.workOn(ctx, a)
	if err != nil {
		return false
	}
	defer other.end()
	other.waitCtx, other.hasProcess, other.calls = e.ctx, true, w.calls
	switch work {
	case attachment.Freed:
		return other.settle(true) == nil
	case attachment.Kept:
		return other.Keep() == nil
	case attachment.Missing:
		return other.KeepLost(o.Record)
	case attachment.Taken:
		return other.Take(o.Record)
	case attachment.Given:
		return other.Give(o.Record)
	}
	if w.unreleased() {
		return false
	}
	other.Action, other.requestID = attachment.Cleanup, w.requestID
	ips := other.Rec.Addrs()
	err = other.EndCooldown()
	other.recordResult(err)
	if err != nil {
		e.mu.Lock()
		other.entry.shared.unreleased = other.entry
		e.mu.Unlock()
	}
	other.logOutcome(ips, err, "Released a spare attachment for "+w.String(), "Failed to release a spare attachment for "+w.String())
	return err == nil
}

// spareRetries takes about a minute.
const spareRetries = 6

// unreleased reports whether a spare attachment of the pool could not be released: in an outage no other one can, either.
// One that still fails after spareRetries may be alone with its fault.
func (w world) unreleased() bool {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	a := w.entry.shared.unreleased
	return a != nil && a.releasing() && a.Failures > 0 && a.Failures <= spareRetries
}
