package engine

import (
	"net/netip"
	"slices"
)

// index finds attachments by address. It is guarded by entries.mu.
type index map[netip.Addr][]indexEntry

// indexEntry is an attachment that has an address in a network. Of several with one address in one
// network, all but one are releasing, unless their records were on the disk at the start.
type indexEntry struct {
	*entry
	network string
}

// conflict returns another attachment of the same network or pool that has one of the addresses: a
// release names only pool and address. It returns the one whose record is the oldest, of those that are being released
// or of the others.
func (x index) conflict(a *entry, network string, ips []netip.Addr, releasing bool) (other *entry, taken netip.Addr) {
	for _, ip := range ips {
		for _, h := range x[ip] {
			if h.entry != a && (h.network == network || h.Pool == a.Pool) && h.releasing() == releasing && (other == nil || h.Rec.OlderThan(other.Rec)) {
				other, taken = h.entry, ip
			}
		}
	}
	return other, taken
}

func (x index) add(a *entry, network string, ips []netip.Addr) {
	h := indexEntry{a, network}
	for _, ip := range ips {
		if !slices.Contains(x[ip], h) {
			x[ip] = append(x[ip], h)
		}
	}
}

func (x index) remove(a *entry, ips []netip.Addr) {
	for _, ip := range ips {
		x[ip] = slices.DeleteFunc(x[ip], func(h indexEntry) bool { return h.entry == a })
		if len(x[ip]) == 0 {
			delete(x, ip)
		}
	}
}

// replaceReserved replaces the addresses that are set aside for an entry beside those of its record.
func (x index) replaceReserved(a *entry, network string, ips []netip.Addr) {
	x.remove(a, a.reserved)
	a.reserved = ips
	x.add(a, network, ips)
	if a.Rec != nil {
		x.add(a, a.Rec.Network, a.Rec.Reserved())
	}
}
