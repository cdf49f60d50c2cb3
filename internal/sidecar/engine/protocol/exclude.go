package protocol

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// An excluded address that the plugin returns is released and acquired again for a separate
// owner, so that the plugin returns another one (docs/design/how-it-works.md, Excluded addresses).

// excludes reports whether an address must not be allocated: it is excluded, and not claimed by the
// owner; a claimed one was allocated before it was excluded.
func (op *Operation) excludes(ip netip.Addr) bool {
	rec := op.Rec
	return op.Opts.Excludes(ip) && (rec == nil || !rec.Holds(ip) || !rec.Claimed(record.FamilyOf(ip)))
}

// checkExcluded returns an error if a result must not be used because of an excluded address, or, for
// an attachment that keeps an excluded address, if there is nothing to keep. An excluded address that
// came with requested ones stays with them, because they may be in use; it is not allocated. A container
// would get it: its response is the plugin's result.
func (op *Operation) checkExcluded(inv call.Invocation, res call.Result) error {
	if len(inv.Requested) > 0 && !OfContainer(op.Owner) {
		return nil
	}
	came := call.Addrs(res.Addresses)
	i := slices.IndexFunc(came, op.excludes)
	switch {
	case KeepsExcluded(op.Owner):
		if i < 0 {
			return &rejectedResult{error: fmt.Errorf("plugin %s returned %v, none of which is excluded", inv.Plugin, came)}
		}
	case i >= 0:
		return &rejectedResult{
			error: fmt.Errorf("plugin %s returned %v, and %s is excluded (--exclude-addresses)", inv.Plugin, came, came[i]),
			ip:    came[i], excluded: true,
		}
	}
	return nil
}

// checkRequired rejects a restore of an excluded address that the owner does not have, and of one
// outside the ranges unless the owner holds others.
func (op *Operation) checkRequired(w Want) error {
	for _, ip := range w.Required {
		switch {
		case op.excludes(ip) && !KeepsExcluded(op.Owner):
			return op.excludedRequestError(ip)
		case op.outside(ip) && (op.Rec == nil || op.Rec.Holds(ip)):
			return op.outsideError(ip)
		}
	}
	return nil
}

// Keep acquires an excluded address that an ADD with an invocation returned.
func (op *Operation) Keep(inv call.Invocation, ip netip.Addr) error {
	var w Want
	if canRequest(inv, []netip.Addr{ip}) {
		w.Required = []netip.Addr{ip}
	}
	return op.acquire(w)
}
