package render

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"
)

// farOctet inverts the first bit of a byte of an address: the ranges of 10.0.${labels[n]}.0/23 must not
// overlap because two numbers are neighbours.
const farOctet = 0x80

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
		return strconv.FormatInt(i^farOctet, 10)
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
		return anotherNumber(v)
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

// anotherNumber returns a number with another last digit. It is not a float64, which has no other value
// for a large number plus one.
func anotherNumber(n json.Number) json.Number {
	last := len(n) - 1 // a digit, by the grammar of JSON
	return n[:last] + json.Number(n[last]^1)
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
