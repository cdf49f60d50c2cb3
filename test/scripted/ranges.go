package main

import "net/netip"

// contains reports whether the range can allocate the address.
func (r addressRange) contains(ip netip.Addr) bool {
	return r.Subnet.Contains(ip) && ip.Compare(r.first()) >= 0 && ip.Compare(r.last()) <= 0 && ip != r.gateway()
}

// first returns the first address that can be allocated, after the network address.
func (r addressRange) first() netip.Addr {
	if r.RangeStart.IsValid() {
		return r.RangeStart
	}
	return r.Subnet.Masked().Addr().Next()
}

// last returns the last address that can be allocated, before an IPv4 broadcast address.
func (r addressRange) last() netip.Addr {
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

func (r addressRange) gateway() netip.Addr {
	if r.Gateway.IsValid() {
		return r.Gateway
	}
	return r.Subnet.Masked().Addr().Next()
}
