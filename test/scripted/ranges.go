package main

import "net/netip"

// contains tells whether a range may give the address.
func (r rangeOfNet) contains(ip netip.Addr) bool {
	return r.Subnet.Contains(ip) && ip.Compare(r.first()) >= 0 && ip.Compare(r.last()) <= 0 && ip != r.gateway()
}

// first is the first address to give; the subnet's own is none.
func (r rangeOfNet) first() netip.Addr {
	if r.RangeStart.IsValid() {
		return r.RangeStart
	}
	return r.Subnet.Masked().Addr().Next()
}

// last is the last address to give; an IPv4 subnet's broadcast is none.
func (r rangeOfNet) last() netip.Addr {
	if r.RangeEnd.IsValid() {
		return r.RangeEnd
	}
	bytes := r.Subnet.Masked().Addr().AsSlice()
	for bit := r.Subnet.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	if last.Is4() {
		return last.Prev()
	}
	return last
}

func (r rangeOfNet) gateway() netip.Addr {
	if r.Gateway.IsValid() {
		return r.Gateway
	}
	return r.Subnet.Masked().Addr().Next()
}
