package faults

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// request is one request of a scenario, and what its answer means.
type request struct {
	method, path string
	header       []string
	// owner is who asks, or who has the address that is released.
	owner string
	// ip is the address that is restored or released.
	ip netip.Addr
	// family is the one that is asked for; empty for all.
	family string
	// right are the statuses that a healthy node answers, at first or when asked
	// again after a crash.
	right []int
}

// allocation asks for an owner's addresses; an empty family for all of them.
func allocation(owner, family string) request {
	query := url.Values{"owner": {owner}}
	if family != "" {
		query.Set("family", family)
	}
	return request{
		method: http.MethodPost, path: "/v1/ipam?" + query.Encode(),
		owner: owner, family: family, right: []int{http.StatusCreated},
	}
}

// expiring is an allocation that must be confirmed.
func expiring(owner string) request {
	r := allocation(owner, "")
	r.header = []string{"expiration", "true"}
	return r
}

// refused is an allocation that the plugin has no address for.
func refused(owner string) request {
	r := allocation(owner, "")
	r.right = []int{http.StatusBadGateway}
	return r
}

func restoration(ip, owner string) request {
	return request{
		method: http.MethodPost, path: "/v1/ipam/" + ip + "?owner=" + url.QueryEscape(owner),
		owner: owner, ip: netip.MustParseAddr(ip), right: []int{http.StatusOK},
	}
}

// release gives an address back. Asked again it may be unknown: the first one
// has come through although its answer has not.
func release(ip netip.Addr, owner string) request {
	return request{
		method: http.MethodDelete, path: "/v1/ipam/" + ip.String(),
		owner: owner, ip: ip, right: []int{http.StatusOK, http.StatusNotFound},
	}
}

// sent notes that the request is on its way.
func (r request) sent(h *oracle.History) {
	switch r.method {
	case http.MethodDelete:
		h.Releasing(r.ip)
	case http.MethodPost:
		h.Asking(r.owner)
	}
}

// answered notes what the client was told.
func (r request) answered(h *oracle.History, a harness.Response) {
	switch {
	case r.method == http.MethodDelete && slices.Contains(r.right, a.Status):
		h.Released(r.owner, r.ip)
	case len(r.addresses(a)) > 0:
		ips := r.addresses(a)
		h.Got(r.owner, ips...)
		if len(r.header) > 0 {
			h.Releasing(ips...) // from now on it may expire at any time
		}
	}
}

// missed returns what was held for the owner before it asked again, and is not in
// the answer; a refusal has nothing in it. It does not judge what may have expired
// between the two.
func (r request) missed(before oracle.Final, a harness.Response) []oracle.Violation {
	if r.method != http.MethodPost || len(r.header) > 0 {
		return nil
	}
	before.Listed = slices.DeleteFunc(before.Listed, func(held oracle.Held) bool { return !r.asksFor(held.IP) })
	return oracle.Retried(r.owner, before, r.addresses(a))
}

// asksFor tells whether an address that the owner has must be in the answer.
func (r request) asksFor(ip netip.Addr) bool {
	if r.ip.IsValid() {
		return r.ip == ip
	}
	return r.family == "" || (r.family == "ipv4") == ip.Is4()
}

// addresses are those that an answer of success gives to the owner; none if it
// cannot be read, which the judgement of what is held then shows.
func (r request) addresses(a harness.Response) []netip.Addr {
	if a.Status == http.StatusOK && r.ip.IsValid() {
		return []netip.Addr{r.ip}
	}
	var got harness.Allocation
	if json.Unmarshal(a.Body, &got) != nil {
		return nil
	}
	var ips []netip.Addr
	for _, text := range got.Addresses() {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}
