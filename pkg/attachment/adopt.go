package attachment

import (
	"context"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// adopt makes what the plugin's store holds for the owner's container ID the record of an
// owner that has none: its journal was lost. absent reports that the store provably holds
// nothing, so that an ADD needs no DEL before it. Addresses that cannot be adopted are
// requested from the ADD. The error is a *duplicate, or that the record could not be written.
func (o *op) adopt(today call.Invocation, want *goal) (adopted, absent bool, err error) {
	found, err := o.plugin.Lookup(context.Background(), today)
	if len(found.Addresses) == 0 {
		return false, err == nil, nil
	}
	families, unfit := want.accepts(found, nil)
	if err != nil || unfit != nil {
		want.preferFound(found.Addresses)
		return false, false, nil
	}
	if err := o.reserve(today, found); err != nil {
		return false, false, err
	}
	found.InStore = true
	if err := o.hold(today, found, families, want.expire); err != nil {
		o.unreserve(found)
		return false, false, err
	}
	o.log().WithField(fieldIPAddrs, addrs(found.Addresses)).Info("Adopted the addresses that the plugin's store holds: the journal had no record of them")
	return true, false, nil
}

// preferFound asks for addresses that the owner held before its journal was lost, beside
// those that the result must have.
func (g *goal) preferFound(found []call.Address) {
	g.known = append(slices.Clone(g.known), found...)
	prefer := slices.Clone(g.must)
	for _, ip := range addrs(found) {
		same := func(other netip.Addr) bool { return record.FamilyOf(other) == record.FamilyOf(ip) }
		if !slices.ContainsFunc(prefer, same) {
			prefer = append(prefer, ip)
		}
	}
	g.prefer = prefer
}
