package profiletry

import (
	"errors"
	"fmt"
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

// overlap reports whether two results have an address in common.
func overlap(a, b call.Result) bool {
	return slices.ContainsFunc(addrs(a), func(ip netip.Addr) bool { return slices.Contains(addrs(b), ip) })
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

// describe returns the description of the errors of two attempts for IDs that hold nothing: their codes and the longest
// run of words that both have, without those of the call, of the details if both have some, or else of the message. No
// ADD, and no CHECK of what is held, may have failed with it. Code alone is not enough, because a plugin built with
// CNI's skel package has one code for every error.
func (r *run) describe(a, b *call.Error) (profile.Lost, error) {
	err := errors.New("the two errors have no text in common by which they could be recognized")
	for _, texts := range [][2]string{{a.Details, b.Details}, {a.Msg, b.Msg}} {
		text := r.commonText(texts[0], texts[1])
		isOther := func(e *call.Error) bool {
			return (e.Verb == call.VerbAdd || e == r.seen.checkHeld.err) && strings.Contains(e.Msg+"\n"+e.Details, text)
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

// commonText returns the longest run of words that is in both texts, without those that name something of the call.
func (r *run) commonText(a, b string) (longest string) {
	of := r.scratches[0].call
	words := strings.Split(a, " ")
	for from := range words {
		for to := from + 1; to <= len(words); to++ {
			text := strings.Join(words[from:to], " ")
			names := func(what string) bool { return what != "" && strings.Contains(text, what) }
			if slices.ContainsFunc([]string{r.IDPrefix, r.Network.Name, of.IfName, of.NetNS}, names) || !strings.Contains(b, text) {
				break
			}
			if len(text) > len(longest) {
				longest = text
			}
		}
	}
	return longest
}
