package attachment

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// An excluded address that the plugin returns is released, and the request fails: only the plugin can be
// configured not to return it (docs/design/how-it-works.md, Excluded addresses).

// excludes reports whether an address must not be allocated: it is excluded, and not claimed by the
// owner; a claimed one was allocated before it was excluded.
func (op *Operation) excludes(ip netip.Addr) bool {
	rec := op.Rec
	return op.Opts.Excludes(ip) && (rec == nil || !rec.Holds(ip) || !rec.Claimed(FamilyOf(ip)))
}

// checkExcluded returns an error if a result must not be used because of an excluded address. One that
// came with requested ones stays with them, because they may be in use; it is not allocated. A container
// would get it: its response is the plugin's result.
func (op *Operation) checkExcluded(inv call.Invocation, res call.Result) error {
	if len(inv.Requested) > 0 && !OfContainer(op.Owner) {
		return nil
	}
	came := call.Addrs(res.Addresses)
	if i := slices.IndexFunc(came, op.excludes); i >= 0 {
		return &rejectedResult{error: fmt.Errorf("plugin %s returned %v, which was released, because %s is excluded (--exclude-addresses): exclude it in the plugin's configuration, too",
			inv.Plugin, came, came[i])}
	}
	return nil
}

// checkRequired rejects a restore of an excluded address that the owner does not have, and of one
// outside the ranges unless the owner holds others.
func (op *Operation) checkRequired(w Want) error {
	for _, ip := range w.Required {
		switch {
		case op.excludes(ip):
			return op.excludedRequestError(ip)
		case op.outside(ip) && (op.Rec == nil || op.Rec.Holds(ip)):
			return op.outsideError(ip)
		}
	}
	return nil
}
