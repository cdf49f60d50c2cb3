package attachment

import (
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
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
// the same network that has one of them already, and enters none.
func (x index) reserve(a *entry, network string, addresses []call.Address) *entry {
	for _, addr := range addresses {
		for _, h := range x[addr.Addr()] {
			if h.entry != a && h.network == network {
				return h.entry
			}
		}
	}
	x.enter(a, network, addresses)
	return nil
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
