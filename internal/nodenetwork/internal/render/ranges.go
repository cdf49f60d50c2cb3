package render

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// ipam has the fields of an ipam object that name addresses: host-local has subnet and ranges,
// static has addresses.
type ipam struct {
	addressRange
	Ranges    [][]addressRange `json:"ranges"`
	Addresses []struct {
		Address string `json:"address"`
	} `json:"addresses"`
}

type addressRange struct {
	Subnet     string `json:"subnet,omitempty"`
	RangeStart string `json:"rangeStart,omitempty"`
	RangeEnd   string `json:"rangeEnd,omitempty"`
}

// span is a range or an address from which a network allocates.
type span struct {
	// text is its JSON.
	text string
	// first and last are its first and last address; zero if they cannot be read.
	first, last netip.Addr
}

// shared reports whether two nodes with these spans would have an address in common. Equal ends count
// although a span may end before it begins: the values of an imaginary node have no order.
func (s span) shared(other span) bool {
	if !s.first.IsValid() || !s.last.IsValid() || !other.first.IsValid() || !other.last.IsValid() {
		return s.text == other.text
	}
	return s.first == other.first || s.last == other.last || s.first.Compare(other.last) <= 0 && other.first.Compare(s.last) <= 0
}

// bounds returns the first and last address of a prefix, which may also be one address.
func bounds(prefix string) (first, last netip.Addr) {
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		address, _, _ := strings.Cut(prefix, "/")
		first, _ = netip.ParseAddr(address) // zero on errors
		return first, first
	}
	first = p.Masked().Addr()
	bytes := first.AsSlice()
	for bit := p.Bits(); bit < first.BitLen(); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ = netip.AddrFromSlice(bytes) // an address has this length
	return first, last
}

// rangesOf returns each range or address from which a network allocates. If the configuration has none
// of these fields, it returns the whole ipam object.
func rangesOf(n call.Network) ([]span, error) {
	var plugin struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(n.PluginConfig, &plugin); err != nil {
		return nil, err
	}
	var found ipam
	if err := json.Unmarshal(plugin.IPAM, &found); err != nil {
		return nil, fmt.Errorf("cannot read the ipam object of the result: %w; expected the fields that plugin %s documents", err, n.IPAMType)
	}
	var all []span
	for _, r := range append(slices.Concat(found.Ranges...), found.addressRange) {
		if r == (addressRange{}) {
			continue
		}
		text, err := asJSON(r)
		if err != nil {
			return nil, err
		}
		first, last := bounds(r.Subnet)
		if r.RangeStart != "" {
			first, _ = bounds(r.RangeStart)
		}
		if r.RangeEnd != "" {
			last, _ = bounds(r.RangeEnd)
		}
		all = append(all, span{text, first, last})
	}
	for _, a := range found.Addresses {
		address, _, _ := strings.Cut(a.Address, "/")
		first, last := bounds(address)
		all = append(all, span{a.Address, first, last})
	}
	if len(all) == 0 {
		all = []span{{text: string(plugin.IPAM)}}
	}
	return all, nil
}
