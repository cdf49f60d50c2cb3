package attachment

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// reserve sets the addresses of a result aside. If another attachment has one of them,
// the plugin allocated it twice (step 6): the caller releases ours, and the other attachment
// is verified.
func (op *Operation) reserve(inv call.Invocation, res call.Result) error {
	other, ip := op.World.Reserve(inv.Network, call.Addrs(res.Addresses))
	switch {
	case !ip.IsValid():
		return nil
	case !inv.Profile.Unique:
		return &rejectedResult{error: fmt.Errorf("plugin %s returns the same addresses %v for every attachment, and %s (container ID %s) has them; ours was released: configure a separate network, or request another address",
			inv.Plugin, call.Addrs(res.Addresses), other, other.ID)}
	}
	r := &rejectedResult{
		error: fmt.Errorf("plugin %s returned %v, which %s (container ID %s) has already; ours was released",
			inv.Plugin, call.Addrs(res.Addresses), other, other.ID),
		holder: &other,
	}
	if other.Lost {
		r.error = fmt.Errorf("%w; the plugin no longer holds it for that owner: if that owner does not exist, release its address", r.error)
	}
	// An attachment that is reacquired because of another one reacquires no third one, or lost
	// attachments could go on for long.
	if !op.Freed && !op.World.Stopping() {
		requested := slices.ContainsFunc(inv.Requested, func(p netip.Prefix) bool { return p.Addr() == ip })
		r.repeatable = !requested && (len(inv.Requested) > 0 || other.Lost)
		missing := func(ip netip.Addr) bool { return !slices.Contains(call.Addrs(res.Addresses), ip) }
		r.holderIsFree = other.Lost && !slices.ContainsFunc(other.Addresses, missing)
	}
	op.World.Note(Note{NoteDuplicate, r})
	op.World.Doubt(other)
	return r
}
