package engine

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// duplicateError is a successful ADD whose result another attachment has.
type duplicateError struct {
	error
	// other has the address ip; verify reports whether it must be verified.
	other  *entry
	ip     netip.Addr
	verify bool
	// repeatable reports that the same request may return another address: this one was not
	// requested, and came beside requested ones, or the plugin does not hold it for other.
	repeatable bool
	// offer reports that other is lost and that the result had all its addresses: the plugin holds
	// none of them.
	offer bool
}

// newDuplicateError describes a result of which other has the address ip. Engine.mu is held.
func (op *operation) newDuplicateError(inv call.Invocation, res call.Result, other *entry, ip netip.Addr) *duplicateError {
	d := &duplicateError{
		other: other, ip: ip, verify: other.failures == 0, // otherwise its retry verifies it
		error: fmt.Errorf("plugin %s returned %v, which %s (container ID %s) has already; ours was released",
			inv.Plugin, addrs(res.Addresses), other.key, other.idInUse()),
	}
	if other.lost {
		d.error = fmt.Errorf("%w; the plugin no longer holds it for that owner: if that owner does not exist, release its address", d.error)
	}
	// An offer is tried once, or lost attachments could offer each other addresses for long.
	if op.offered || op.engine.ctx.Err() != nil {
		return d
	}
	requested := slices.ContainsFunc(inv.Requested, func(p netip.Prefix) bool { return p.Addr() == ip })
	d.repeatable = !requested && (len(inv.Requested) > 0 || other.lost)
	missing := func(a call.Address) bool { return !slices.Contains(addrs(res.Addresses), a.Addr()) }
	d.offer = other.lost && !slices.ContainsFunc(other.rec.Result.Addresses, missing)
	return d
}

// reserve adds the addresses of a result to the index. If another attachment has one of them,
// the plugin allocated it twice (step 6): the caller releases ours, and the other attachment
// is verified.
func (op *operation) reserve(inv call.Invocation, res call.Result) error {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	other, taken := op.engine.index.conflict(op.entry, inv.Network, res.Addresses)
	switch {
	case other == nil:
		op.engine.index.add(op.entry, inv.Network, res.Addresses)
		return nil
	case !inv.Profile.Unique:
		return &unusableResult{fmt.Errorf("plugin %s returns the same addresses %v for every attachment, and %s (container ID %s) has them; ours was released: configure a separate network, or request another address",
			inv.Plugin, addrs(res.Addresses), other.key, other.idInUse())}
	}
	op.engine.count(func(c *Counters) { c.Duplicates++ })
	err := op.newDuplicateError(inv, res, other, taken)
	op.log().WithError(err).Error("Duplicate address from the plugin")
	if err.verify {
		other.verifyDue.Store(true)
	}
	return err
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
