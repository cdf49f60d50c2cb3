package faults

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// request is a request, and the meaning of its response.
type request struct {
	method, path string
	header       []string
	// owner allocates, or holds the address that is released.
	owner string
	// ip is the address that is restored or released.
	ip netip.Addr
	// family is the requested one; empty for all.
	family string
	// wantStatus are the statuses of a healthy node, for a first or a repeated request.
	wantStatus []int
}

// allocation requests an owner's addresses; an empty family means both.
func allocation(owner, family string) request {
	query := url.Values{"owner": {owner}}
	if family != "" {
		query.Set("family", family)
	}
	return request{
		method: http.MethodPost, path: "/v1/ipam?" + query.Encode(),
		owner: owner, family: family, wantStatus: []int{http.StatusCreated},
	}
}

func restore(ip, owner string) request {
	return request{
		method: http.MethodPost, path: "/v1/ipam/" + ip + "?owner=" + url.QueryEscape(owner),
		owner: owner, ip: netip.MustParseAddr(ip), wantStatus: []int{http.StatusOK},
	}
}

// restoreBoth restores an address of an owner that knows the one of the other family.
func restoreBoth(ip, also, owner string) request {
	r := restore(ip, owner)
	r.path += "&also=" + url.QueryEscape(also)
	return r
}

// release releases an address, which may be unknown if the response to the first request was missed.
func release(ip netip.Addr, owner string) request {
	return request{
		method: http.MethodDelete, path: "/v1/ipam/" + ip.String(),
		owner: owner, ip: ip, wantStatus: []int{http.StatusOK, http.StatusNotFound},
	}
}

// recordSent records that the request was sent.
func (r request) recordSent(h *oracle.History) {
	switch r.method {
	case http.MethodDelete:
		h.ReleaseRequested(r.ip)
	case http.MethodPost:
		h.Requested(r.owner)
	}
}

// recordResponse records the addresses of a response.
func (r request) recordResponse(h *oracle.History, resp harness.Response) {
	switch {
	case r.method == http.MethodDelete && slices.Contains(r.wantStatus, resp.Status):
		h.Released(r.owner, r.ip)
	case len(r.addresses(resp)) > 0:
		ips := r.addresses(resp)
		h.Allocated(r.owner, ips...)
		if len(r.header) > 0 {
			h.ReleaseRequested(ips...) // it may expire at any time
		}
	}
}

// missing returns a violation for each address that the owner held before it repeated the request
// and that the response lacks. It ignores addresses that may have expired in between.
func (r request) missing(before oracle.Snapshot, resp harness.Response) []oracle.Violation {
	if r.method != http.MethodPost || len(r.header) > 0 {
		return nil
	}
	before.Listed = slices.DeleteFunc(before.Listed, func(held oracle.Listed) bool { return !r.covers(held.IP) })
	return oracle.CheckRetry(r.owner, before, r.addresses(resp))
}

// covers reports whether the response must have an address that the owner holds.
func (r request) covers(ip netip.Addr) bool {
	if r.ip.IsValid() {
		return r.ip == ip
	}
	return r.family == "" || (r.family == "ipv4") == ip.Is4()
}

// addresses returns those that a successful response assigns to the owner. If it cannot be
// parsed there are none, which the check of held addresses then reports.
func (r request) addresses(resp harness.Response) []netip.Addr {
	if resp.Status == http.StatusOK && r.ip.IsValid() {
		return []netip.Addr{r.ip}
	}
	return resp.Addrs()
}
