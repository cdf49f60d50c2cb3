package render

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
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

// imaginary returns a node with the same labels and annotations as n, each with another value of the
// same kind, another name, and other podCIDRs of both families. Nothing from which a template may take
// an address is the same, and all addresses move by the same distance, half of the address space, so
// that ranges overlap only if the template makes them.
func imaginary(n Node) Node {
	other := Node{Name: n.Name + "-other", UID: n.UID + "-other", Labels: map[string]string{}, Annotations: map[string]string{}}
	for key, value := range n.Labels {
		other.Labels[key] = anotherText(value)
	}
	for key, value := range n.Annotations {
		other.Annotations[key] = anotherText(value)
	}
	var has4, has6 bool
	for _, text := range n.PodCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			continue // the template has failed for n if it uses it
		}
		has4, has6 = has4 || p.Addr().Is4(), has6 || p.Addr().Is6()
		other.PodCIDRs = append(other.PodCIDRs, anotherPrefix(p).String())
	}
	// Ranges for documentation (RFC 5737, RFC 3849), which no node has.
	if !has4 {
		other.PodCIDRs = append(other.PodCIDRs, "203.0.113.0/24")
	}
	if !has6 {
		other.PodCIDRs = append(other.PodCIDRs, "2001:db8::/64")
	}
	return other
}

// anotherText returns a text that differs from the given one and is of the same kind: a range, an
// address, a number, true or false, JSON, or any other text. JSON without a string, number or boolean,
// such as null or [], stays: it has no value of its kind that differs.
func anotherText(text string) string {
	if p, err := netip.ParsePrefix(text); err == nil {
		return anotherPrefix(p).String()
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return flip(a).String()
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		// The first bit of a byte: the ranges of 10.0.${labels[n]}.0/23 of neighbours would overlap.
		return strconv.FormatInt(i^0x80, 10)
	}
	if b, err := strconv.ParseBool(text); err == nil {
		return strconv.FormatBool(!b)
	}
	if json.Valid([]byte(text)) {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err == nil {
			text, _ = asJSON(anotherJSON(value)) // it was read from JSON
			return text
		}
	}
	return text + "-other"
}

// anotherJSON returns a JSON value with every text, number and boolean in it replaced.
func anotherJSON(value any) any {
	switch v := value.(type) {
	case json.Number:
		// The last digit, by the grammar of JSON. A float64 has no other value for a large number plus one.
		last := len(v) - 1
		return v[:last] + json.Number(v[last]^1)
	case bool:
		return !v
	case string:
		return anotherText(v)
	case []any:
		for i := range v {
			v[i] = anotherJSON(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = anotherJSON(v[key])
		}
	}
	return value
}

// anotherPrefix returns another range of the same length; for a range of all addresses one for
// documentation.
func anotherPrefix(p netip.Prefix) netip.Prefix {
	if p.Bits() == 0 {
		return netip.MustParsePrefix("203.0.113.0/24")
	}
	return netip.PrefixFrom(flip(p.Masked().Addr()), p.Bits())
}

func flip(a netip.Addr) netip.Addr {
	bytes := a.AsSlice()
	bytes[0] ^= 0x80
	other, _ := netip.AddrFromSlice(bytes) // an address has this length
	return other
}

// SharedRangeError is the error of a template with the same range for two nodes.
type SharedRangeError struct {
	// Plugin is the type of the plugin, Shared the common range.
	Plugin, Shared string
}

// Error names the common range, the expectation and the remedy.
func (e *SharedRangeError) Error() string {
	return fmt.Sprintf("every node would get %s, and plugin %s knows only the allocations of its own node, so two nodes would allocate the same addresses; "+
		"expected ranges of this node, such as ${ranges} (Node.spec.podCIDRs), or a cluster-wide plugin. In a cluster of one node set --single-node", e.Shared, e.Plugin)
}

// checkOwnRange rejects a template with an address in the ranges of both this node and an imaginary node
// with other properties.
func checkOwnRange(text string, n Node, network call.Network) error {
	_, others, err := configuration(text, imaginary(n))
	if err != nil {
		return fmt.Errorf("cannot determine whether other nodes would get the same range, because the template fails for a node with other labels, annotations and podCIDRs: %w; "+
			"expected a template that works for any values, or --single-node in a cluster of one node", err)
	}
	mine, err := rangesOf(network)
	if err != nil {
		return err
	}
	theirs, err := rangesOf(others)
	if err != nil {
		return err
	}
	for _, r := range mine {
		if slices.ContainsFunc(theirs, r.shared) {
			return &SharedRangeError{Plugin: network.IPAMType, Shared: r.text}
		}
	}
	return nil
}
