package httpapi_test

import (
	"bufio"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzParameters checks for any path, query and headers that the response is documented in
// swagger.yaml and that the engine is called at most once, with valid arguments.
func FuzzParameters(f *testing.F) {
	for _, target := range []string{
		"/v1/ipam", "/v1/ipam?owner=router&family=ipv4&pool=default", "/v1/ipam?family=ipx", "/v1/ipam?owner=%00", "/v1/ipam?owner=%zz",
		"/v1/ipam?owner=a%2F..%2F..%2Fb%3B%3D%0A", "/v1/ipam?owner=" + strings.Repeat("a", 513), "/v1/ipam?owner=%ff", "/v1/ipam?owner=a&owner=b",
		"/v1/ipam/10.0.0.1?owner=a", "/v1/ipam/fd00::1", "/v1/ipam/::ffff:10.0.0.1", "/v1/ipam/fe80::1%25eth0", "/v1/ipam/10.0.0.1/24", "/v1/ipam/..%2f..", "/v1//ipam",
	} {
		f.Add(uint8(0), target, "")
		f.Add(uint8(1), target, "true")
	}
	methods := []string{http.MethodPost, http.MethodDelete, http.MethodGet}
	shared := newDual(f)
	f.Fuzz(func(t *testing.T, method uint8, target, expiration string) {
		raw := methods[int(method)%len(methods)] + " " + target + " HTTP/1.1\r\nHost: localhost\r\nExpiration: " + expiration + "\r\n\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return // net/http rejects it
		}
		x := shared.reset()
		x.engine.got = held("router")
		got := x.do(t, r)
		if n := x.engine.calls(); n > 1 || n == 1 && got.code >= http.StatusBadRequest {
			t.Errorf("%q: %d calls of the engine, status code %d", raw, n, got.code)
		}
		for _, a := range x.engine.allocated {
			wantOwner(t, a.Owner)
			if a.Family != "" && a.Family != "ipv4" && a.Family != "ipv6" {
				t.Errorf("the engine was called for family %q", a.Family)
			}
		}
		for _, a := range x.engine.restored {
			wantOwner(t, a.Owner)
			wantAddress(t, a.IP)
		}
		for _, a := range x.engine.released {
			wantAddress(t, a.IP)
		}
	})
}

func wantOwner(t *testing.T, owner string) {
	t.Helper()
	if len(owner) > 512 || !utf8.ValidString(owner) || strings.ContainsFunc(owner, unicode.IsControl) {
		t.Errorf("the engine was called for owner %q", owner)
	}
}

func wantAddress(t *testing.T, ip netip.Addr) {
	t.Helper()
	if !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() || ip.IsMulticast() || ip.IsUnspecified() {
		t.Errorf("the engine was called for address %q", ip)
	}
}
