package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestInvalidParameters(t *testing.T) {
	shared := newDual(t)
	owners := map[string]string{
		"owner over 512 bytes":              strings.Repeat("a", 513),
		"owner of 257 two-byte characters":  strings.Repeat("é", 257),
		"owner with a line feed":            "a\nb",
		"owner with a NUL":                  "a\x00b",
		"owner with DEL":                    "a\x7fb",
		"owner with a C1 control character": "a\u0085b",
		"owner of invalid UTF-8":            "a\xffb",
		"owner of over 512 invalid bytes":   strings.Repeat("\xff", 513),
	}
	targets := map[string]string{
		"unknown family":     "/v1/ipam?family=ipx",
		"family in capitals": "/v1/ipam?family=IPX",
		"invalid escape":     "/v1/ipam?owner=%zz",
		"unescaped percent":  "/v1/ipam/10.0.0.1?owner=100%",
	}
	for name, owner := range owners {
		targets["allocate, "+name] = "/v1/ipam?owner=" + url.QueryEscape(owner)
		targets["restore, "+name] = "/v1/ipam/10.0.0.1?owner=" + url.QueryEscape(owner)
	}
	for name, target := range targets {
		t.Run(name, func(t *testing.T) {
			f := shared.reset()
			got := f.send(t, http.MethodPost, target)
			wantCode(t, got, http.StatusUnprocessableEntity)
			check.True(t, f.engine.calls() == 0, "the engine was called")
		})
	}
}

func TestOwnerLimit(t *testing.T) {
	shared := newDual(t)
	for _, owner := range []string{strings.Repeat("a", 512), strings.Repeat("é", 256), "namespace/pod", "with space"} {
		f := shared.reset()
		f.engine.got = held("health")
		wantCode(t, f.send(t, http.MethodPost, "/v1/ipam?owner="+url.QueryEscape(owner)), http.StatusCreated)
		check.Equal(t, "owner", f.engine.allocated[0].Owner, owner)
	}
	got := shared.reset().send(t, http.MethodPost, "/v1/ipam?owner="+url.QueryEscape(strings.Repeat("é", 257)))
	want := `"owner in query should be at most 512 bytes long"`
	check.Equal(t, "body", strings.TrimSpace(got.body), want)
}

func TestInvalidAddresses(t *testing.T) {
	shared := newDual(t)
	for name, ip := range map[string]string{
		"a word":             "health",
		"a prefix length":    "10.0.0.1/24",
		"a zone":             "fe80::1%eth0",
		"an octet over 255":  "10.0.0.256",
		"a leading zero":     "10.0.0.01",
		"unspecified":        "0.0.0.0",
		"unspecified IPv6":   "::",
		"unspecified 4-in-6": "::ffff:0.0.0.0",
		"multicast":          "224.0.0.1",
		"multicast IPv6":     "ff02::1",
		"multicast 4-in-6":   "::ffff:224.0.0.1",
		"another header":     "10.0.0.1%eth0\r\nX: é",
	} {
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			t.Run(method+" "+name, func(t *testing.T) {
				f := shared.reset()
				got := f.send(t, method, "/v1/ipam/"+url.PathEscape(ip))
				wantCode(t, got, http.StatusBadRequest)
				check.True(t, f.engine.calls() == 0, "the engine was called")
				before, _, _ := strings.Cut(ip, "\r")
				check.Contains(t, payload(t, got), before)
				check.True(t, f.logLine(t).Data["error"] != nil, "the log line has no error")
			})
		}
	}
}

func TestAlso(t *testing.T) {
	shared := newDual(t)
	for name, tt := range map[string]struct {
		ip, also string
		code     int
		want     string
	}{
		"IPv6 and IPv4":   {"10.1.2.3", "FD00::3", http.StatusOK, "fd00::3"},
		"IPv4 and IPv6":   {"fd00::3", "10.1.2.3", http.StatusOK, "10.1.2.3"},
		"4-in-6 and IPv6": {"fd00::3", "::ffff:10.1.2.3", http.StatusOK, "10.1.2.3"},
		"empty":           {"10.1.2.3", "", http.StatusOK, ""},
		"the same family": {"10.1.2.3", "10.1.2.4", http.StatusBadRequest, "expected one of the other family"},
		"4-in-6 and IPv4": {"10.1.2.3", "::ffff:10.1.2.4", http.StatusBadRequest, "expected one of the other family"},
		"a word":          {"10.1.2.3", "health", http.StatusBadRequest, "parameter also"},
		"a prefix":        {"10.1.2.3", "fd00::3/64", http.StatusBadRequest, "parameter also"},
		"multicast":       {"10.1.2.3", "ff02::1", http.StatusBadRequest, "parameter also"},
	} {
		t.Run(name, func(t *testing.T) {
			f := shared.reset()
			got := f.send(t, http.MethodPost, "/v1/ipam/"+tt.ip+"?owner=router&also="+url.QueryEscape(tt.also))
			wantCode(t, got, tt.code)
			if tt.code != http.StatusOK {
				if reason := payload(t, got); !strings.Contains(reason, tt.want) || f.engine.calls() != 0 {
					t.Errorf("the reason is %q after %d calls of the engine; want %q and none", reason, f.engine.calls(), tt.want)
				}
				return
			}
			want, _ := netip.ParseAddr(tt.want)
			check.Equal(t, "other address", f.engine.restored[0].Also, want)
		})
	}
}

func TestAddressParameter(t *testing.T) {
	shared := newDual(t)
	for in, want := range map[string]string{
		"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3", "FD00::0:1": "fd00::1", "fe80::1": "fe80::1",
	} {
		f := shared.reset()
		wantCode(t, f.send(t, http.MethodPost, "/v1/ipam/"+in+"?owner=health&pool=blue"), http.StatusOK)
		wantCode(t, f.send(t, http.MethodDelete, "/v1/ipam/"+in+"?pool=blue"), http.StatusOK)
		ip := netip.MustParseAddr(want)
		check.Equal(t, "restore", f.engine.restored[0], engine.RestoreRequest{IP: ip, Owner: "health", Pool: "blue"})
		check.Equal(t, "release", f.engine.released[0], engine.ReleaseRequest{IP: ip, Pool: "blue"})
		wantCode(t, f.send(t, http.MethodDelete, "/v1/ipam/"+in+"?pool=blue&owner=health", "Skip-Release-Delay", "true"), http.StatusOK)
		check.Equal(t, "release", f.engine.released[1], engine.ReleaseRequest{IP: ip, Pool: "blue", Owner: "health", SkipDelay: true})
	}
}

func TestAllocateParameters(t *testing.T) {
	f := newDual(t)
	f.engine.got = held("health")
	wantCode(t, f.send(t, http.MethodPost, "/v1/ipam?owner=health&pool=blue&family=ipv6", "Expiration", "true"), http.StatusCreated)
	wantCode(t, f.send(t, http.MethodPost, "/v1/ipam"), http.StatusCreated)
	check.Equal(t, "calls of the engine", f.engine.allocated, []engine.AllocateRequest{
		{Owner: "health", Pool: "blue", Family: attachment.IPv6, Expire: true},
		{Pool: "default"},
	})
}

func TestRequestHeaders(t *testing.T) {
	shared := newDual(t)
	for name, headers := range map[string][]string{
		"none":              nil,
		"curl":              {"Accept", "*/*", "User-Agent", "curl/8"},
		"empty form":        {"Content-Type", "application/x-www-form-urlencoded", "Content-Length", "0"},
		"JSON":              {"Content-Type", "application/json", "Accept", "application/json"},
		"charset in Accept": {"Accept", "application/json; charset=utf-8"},
		"unknown Host":      {"Host", "whatever"},
	} {
		t.Run(name, func(t *testing.T) {
			f := shared.reset()
			f.engine.got = held("health")
			wantCode(t, f.send(t, http.MethodPost, "/v1/ipam?owner=health", headers...), http.StatusCreated)
		})
	}
}

func TestDefaultPool(t *testing.T) {
	f := newFixtureWith(t, httpapi.Options{Addressing: bothFamilies, DefaultPool: "blue"})
	held := held("router")
	held.Pool = "blue"
	for target, want := range map[string]string{
		"/v1/ipam?owner=router": "blue", "/v1/ipam?owner=router&pool=": "blue", "/v1/ipam?owner=router&pool=default": "blue",
		"/v1/ipam?owner=router&pool=blue": "blue", "/v1/ipam?owner=router&pool=red": "red",
	} {
		f.reset().engine.got = held
		wantCode(t, f.send(t, http.MethodPost, target), http.StatusCreated)
		if got := f.engine.allocated[0].Pool; got != want || f.logLine(t).Data["poolName"] != want {
			t.Errorf("%s: the pool is %q, in the log %v; want %q", target, got, f.logLine(t).Data["poolName"], want)
		}
	}
	f.reset().engine.all = []engine.Attachment{held}
	wantCode(t, f.send(t, http.MethodDelete, "/v1/ipam/10.1.2.3?pool=default"), http.StatusOK)
	check.Equal(t, "pool of the release", f.engine.released[0].Pool, "blue")
	check.Contains(t, f.send(t, http.MethodGet, "/v1/healthz").body, `"10.1.2.3":"router"`) // without the name of the pool
	check.Contains(t, f.send(t, http.MethodGet, "/v1/config").body, `"ip":"10.1.2.3"`)
}

// Only privileged callers release a lease that no attachment has; an address is released as before without its ID.
func TestReleaseLease(t *testing.T) {
	var released []string
	f := newFixtureWith(t, httpapi.Options{Callers: unixsock.Callers{UIDs: []int{70002}}, ReleaseLease: func(_ context.Context, pool string, ip netip.Addr, id string) error {
		released = append(released, pool+" "+ip.String()+" "+id)
		if id == "none" {
			return &attachment.Error{Kind: attachment.NotFound, Err: errors.New("there is none")}
		}
		return nil
	}})
	const path = "/v1/ipam/10.1.2.3?pool=blue&lease="
	wantCode(t, f.send(t, http.MethodDelete, path+"cilium-agent-0"), http.StatusOK)
	wantCode(t, f.send(t, http.MethodDelete, path+"none"), http.StatusNotFound)
	wantCode(t, f.send(t, http.MethodDelete, path+strings.Repeat("x", 64)), http.StatusUnprocessableEntity)
	f.peer.UID = 70002
	wantCode(t, f.send(t, http.MethodDelete, path+"cilium-agent-0"), http.StatusForbidden)
	if want := []string{"blue 10.1.2.3 cilium-agent-0", "blue 10.1.2.3 none"}; !slices.Equal(released, want) {
		t.Errorf("got %q; want %q", released, want)
	}
}
