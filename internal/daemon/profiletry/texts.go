package profiletry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
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

// minText is how many letters the constant part of an error must have to recognize it.
const minText = 8

// masked stands for a part of an error that differs between calls. No plugin's text has it: the
// runner removes control characters.
const masked = "\x00"

// describe returns the description of the errors of two attempts for IDs that hold nothing: their codes and their
// longest common text without variables, of the details if both have some, or else of the message. No ADD, and no CHECK
// of what is held, may have failed with it. Code alone is not enough, because a plugin built with CNI's skel package has
// one code for every error.
func (r *run) describe(a, b *call.Error) (profile.Lost, error) {
	err := errors.New("the two errors have no text in common by which they could be recognized")
	variables := r.variables()
	for _, texts := range [][2]string{{a.Details, b.Details}, {a.Msg, b.Msg}} {
		text := commonText(mask(texts[0], variables), mask(texts[1], variables))
		isOther := func(e *call.Error) bool {
			return (e.Verb == call.VerbAdd || e == r.seen.checkHeld.err) && strings.Contains(e.Msg+masked+e.Details, text)
		}
		if letters := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) }); len(strings.Join(letters, "")) < minText {
			continue
		}
		if i := slices.IndexFunc(r.errors, isOther); i >= 0 {
			err = fmt.Errorf("another error has the text %q, too: %w", text, r.errors[i])
			continue
		}
		codes := []uint{a.Code, b.Code}
		slices.Sort(codes)
		return profile.Lost{Codes: slices.Compact(codes), Message: text}, nil
	}
	return profile.Lost{}, err
}

// mask replaces the variables in a text, the longest first, because one may be a part of another.
func mask(text string, variables []string) string {
	slices.SortFunc(variables, func(a, b string) int { return len(b) - len(a) })
	for _, v := range variables {
		if v != "" {
			text = strings.ReplaceAll(text, v, masked)
		}
	}
	return text
}

// commonText returns the longest text that is in both, without masked parts and spaces around it.
func commonText(a, b string) string {
	x, y := []rune(a), []rune(b)
	best, end := 0, 0
	before := make([]int, len(y)+1)
	for i, r := range x {
		now := make([]int, len(y)+1)
		for j := range y {
			if string(r) != masked && r == y[j] {
				now[j+1] = before[j] + 1
			}
			if now[j+1] > best {
				best, end = now[j+1], i+1
			}
		}
		before = now
	}
	return strings.TrimSpace(string(x[end-best : end]))
}

// variables are the parts of an error that differ between calls.
func (r *run) variables() []string {
	all := []string{r.Network.Name}
	var config struct{ IPAM any }
	if len(r.scratches) > 0 && json.Unmarshal(r.scratches[0].call.Config, &config) == nil {
		all = append(all, texts(config.IPAM)...) // such as the name of the plugin's pool
	}
	for _, s := range r.scratches {
		all = append(all, s.call.ContainerID, s.call.IfName, s.call.NetNS)
	}
	for _, a := range []attempt{r.seen.first, r.seen.second, r.seen.again} {
		all = append(all, prefixes(a.result)...)
		for _, ip := range addrs(a.result) {
			all = append(all, ip.String())
		}
	}
	return all
}

// texts returns the texts in a JSON value, without its keys.
func texts(value any) (all []string) {
	switch v := value.(type) {
	case string: // a list, too, such as of the names of pools
		all = append(strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(",; ", r) }), v)
	case []any:
		for _, e := range v {
			all = append(all, texts(e)...)
		}
	case map[string]any:
		all = texts(slices.Collect(maps.Values(v)))
	}
	return all
}
