package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// unusableResult is a successful ADD whose result does not match the request.
type unusableResult struct{ error }

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

// retryable reports whether an ADD that requests less may succeed: the plugin works but refuses
// this request. CNI's own codes (try again later, invalid configuration) do not say that, and
// an address that may be available later is not lost for them.
func retryable(err error) bool {
	var unusable *unusableResult
	var duplicate *duplicateError
	var e *call.Error
	return errors.As(err, &unusable) || errors.As(err, &duplicate) ||
		errors.As(err, &e) && e.IsPluginRefusal()
}
