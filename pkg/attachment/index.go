package attachment

import (
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// index finds attachments by address. Engine.mu is held by whoever uses it.
type index map[netip.Addr][]holding

// holding is an attachment that has an address in a network; one address can
// belong to several attachments only in different networks.
type holding struct {
	*entry
	network string
}

// reserve enters the addresses for an attachment, or returns the attachment of
// the same network or pool that has one of them already, with that one, and enters none: a
// release names only pool and address. One that is being released does not count:
// until its DEL has worked, the plugin itself gives the address to nobody.
func (x index) reserve(a *entry, network string, addresses []call.Address) (other *entry, taken netip.Addr) {
	for _, addr := range addresses {
		for _, h := range x[addr.Addr()] {
			if h.entry != a && (h.network == network || h.pool == a.pool) && h.rec.State != record.Releasing {
				return h.entry, addr.Addr()
			}
		}
	}
	x.enter(a, network, addresses)
	return nil, netip.Addr{}
}

// holder returns the attachment of a pool that has the address: one that is
// being released only if no other has it.
func (x index) holder(pool string, ip netip.Addr) *entry {
	var found *entry
	for _, h := range x[ip] {
		if h.pool == pool && (found == nil || found.rec.State == record.Releasing) {
			found = h.entry
		}
	}
	return found
}

// enter adds what is not there yet.
func (x index) enter(a *entry, network string, addresses []call.Address) {
	for _, addr := range addresses {
		ip, h := addr.Addr(), holding{a, network}
		if !slices.Contains(x[ip], h) {
			x[ip] = append(x[ip], h)
		}
	}
}

// drop takes the addresses of an attachment out.
func (x index) drop(a *entry, addresses []call.Address) {
	for _, addr := range addresses {
		ip := addr.Addr()
		x[ip] = slices.DeleteFunc(x[ip], func(h holding) bool { return h.entry == a })
		if len(x[ip]) == 0 {
			delete(x, ip)
		}
	}
}
