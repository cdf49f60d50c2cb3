package engine

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// reserve adds the addresses of a result to the index. If another attachment has one of them,
// the plugin allocated it twice (step 6): the caller releases ours, and the other attachment
// is verified.
func (op *operation) reserve(inv call.Invocation, res call.Result) error {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	other, ip := op.engine.index.conflict(op.entry, inv.Network, res.Addresses)
	switch {
	case other == nil:
		op.engine.index.add(op.entry, inv.Network, res.Addresses)
		return nil
	case !inv.Profile.Unique:
		return &rejectedResult{error: fmt.Errorf("plugin %s returns the same addresses %v for every attachment, and %s (container ID %s) has them; ours was released: configure a separate network, or request another address",
			inv.Plugin, call.Addrs(res.Addresses), other.key, other.idInUse())}
	}
	r := &rejectedResult{
		error: fmt.Errorf("plugin %s returned %v, which %s (container ID %s) has already; ours was released",
			inv.Plugin, call.Addrs(res.Addresses), other.key, other.idInUse()),
		holder: other, ip: ip,
	}
	if other.lost {
		r.error = fmt.Errorf("%w; the plugin no longer holds it for that owner: if that owner does not exist, release its address", r.error)
	}
	// An attachment that is reacquired because of another one reacquires no third one, or lost
	// attachments could go on for long.
	if !op.freed && op.engine.ctx.Err() == nil {
		requested := slices.ContainsFunc(inv.Requested, func(p netip.Prefix) bool { return p.Addr() == ip })
		r.repeatable = !requested && (len(inv.Requested) > 0 || other.lost)
		missing := func(a call.Address) bool { return !slices.Contains(call.Addrs(res.Addresses), a.Addr()) }
		r.holderIsFree = other.lost && !slices.ContainsFunc(other.rec.Result.Addresses, missing)
	}
	op.engine.count(func(c *Counters) { c.Duplicates++ })
	op.log().WithError(r).Error("Duplicate address from the plugin")
	other.verifyDue.Store(true)
	if other.failures == 0 { // otherwise its retry verifies it
		op.holders = append(op.holders, other)
	}
	return r
}

// unreserve removes a result that could not be recorded from the index.
func (op *operation) unreserve(res call.Result) {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	op.engine.index.remove(op.entry, res.Addresses)
	if op.entry.rec != nil {
		op.engine.index.add(op.entry, op.entry.rec.Network, op.entry.rec.Result.Addresses)
	}
}

// hasOlder reports whether an attachment with an older record has the same address.
func (e *Engine) hasOlder(a *entry) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	other, _ := e.index.conflict(a, a.rec.Network, a.rec.Result.Addresses)
	return other != nil && other.olderThan(a)
}
