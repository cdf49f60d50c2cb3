package profiletry

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

func prefixes(r call.Result) []string {
	var all []string
	for _, a := range r.Addresses {
		all = append(all, a.Prefix.String())
	}
	return all
}

// addrs returns the addresses of a result, sorted.
func addrs(r call.Result) []netip.Addr {
	return slices.SortedFunc(slices.Values(call.Addrs(r.Addresses)), netip.Addr.Compare)
}

// withoutAddresses returns a result with the prefix length in place of each address.
func withoutAddresses(r call.Result) string {
	text := string(r.Raw)
	for _, a := range r.Addresses {
		text = strings.ReplaceAll(text, a.Prefix.String(), fmt.Sprint("/", a.Prefix.Bits()))
	}
	return text
}

// shared returns the addresses that two results have in common.
func shared(a, b call.Result) []netip.Addr {
	have := addrs(b)
	return slices.DeleteFunc(addrs(a), func(ip netip.Addr) bool { return !slices.Contains(have, ip) })
}

// countOf returns how many addresses of a family a result has.
func countOf(r call.Result, is4 bool) int {
	return len(slices.DeleteFunc(addrs(r), func(ip netip.Addr) bool { return ip.Is4() != is4 }))
}

// neighbours returns at most n addresses next to one in its subnet, and never the gateway, the first
// or the last address of the subnet.
func neighbours(a call.Address, n int) []netip.Prefix {
	usable := func(ip netip.Addr) bool {
		whole := a.Prefix.Bits() == ip.BitLen()
		return ip.IsValid() && (whole || a.Prefix.Contains(ip.Next()) && a.Prefix.Contains(ip.Prev()))
	}
	var found []netip.Prefix
	for _, step := range []func(netip.Addr) netip.Addr{netip.Addr.Next, netip.Addr.Prev} {
		for ip := step(a.Addr()); usable(ip) && len(found) < n; ip = step(ip) {
			if ip != a.Gateway {
				found = append(found, netip.PrefixFrom(ip, a.Prefix.Bits()))
			}
		}
	}
	return found
}

// otherResult returns a prevResult that the first ID does not hold: the result of the second ID or,
// if both have an address in common or the second one is missing, one with a neighbouring address. It
// returns false if there is none.
func otherResult(first, second call.Result) (call.Result, bool) {
	if len(second.Addresses) > 0 && len(shared(first, second)) == 0 {
		return second, true
	}
	var raw map[string]json.RawMessage
	var ips []map[string]json.RawMessage
	others := neighbours(first.Addresses[0], 1)
	if len(others) == 0 || json.Unmarshal(first.Raw, &raw) != nil || json.Unmarshal(raw["ips"], &ips) != nil || len(ips) == 0 {
		return call.Result{}, false
	}
	ips[0]["address"], _ = json.Marshal(others[0]) // text always can be marshalled
	raw["ips"], _ = json.Marshal(ips[:1])
	changed, err := json.Marshal(raw)
	return call.Result{Addresses: []call.Address{{Prefix: others[0]}}, Raw: changed}, err == nil
}
