package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

func TestInvalidParameters(t *testing.T) {
	shared := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
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
			if f.engine.calls() != 0 {
				t.Error("the engine was called")
			}
		})
	}
}

func TestOwnerLimit(t *testing.T) {
	shared := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	for _, owner := range []string{strings.Repeat("a", 512), strings.Repeat("é", 256), "namespace/pod", "with space"} {
		f := shared.reset()
		f.engine.got = held("health")
		wantCode(t, f.send(t, http.MethodPost, "/v1/ipam?owner="+url.QueryEscape(owner)), http.StatusCreated)
		if got := f.engine.allocated[0].Owner; got != owner {
			t.Errorf("the engine was called for owner %q; want %q", got, owner)
		}
	}
	got := shared.reset().send(t, http.MethodPost, "/v1/ipam?owner="+url.QueryEscape(strings.Repeat("é", 257)))
	var body struct {
		Code    int
		Message string
	}
	if err := json.Unmarshal([]byte(got.body), &body); err != nil {
		t.Fatal(err)
	}
	if body.Code != 603 || body.Message != "owner in query should be at most 512 bytes long" {
		t.Errorf("got %s; want code 603 and the limit", got.body)
	}
}

func TestInvalidAddresses(t *testing.T) {
	shared := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
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
	} {
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			t.Run(method+" "+name, func(t *testing.T) {
				f := shared.reset()
				got := f.send(t, method, "/v1/ipam/"+url.PathEscape(ip))
				wantCode(t, got, http.StatusBadRequest)
				if f.engine.calls() != 0 {
					t.Error("the engine was called")
				}
				if f.logLine(t).Data["error"] == nil {
					t.Error("the log line has no error")
				}
			})
		}
	}
}

func TestAlso(t *testing.T) {
	shared := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
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
			if also := f.engine.restored[0].Also; also != want {
				t.Errorf("the engine was called with %s; want %s", also, want)
			}
		})
	}
}

func TestAddressParameter(t *testing.T) {
	shared := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	for in, want := range map[string]string{
		"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3", "FD00::0:1": "fd00::1", "fe80::1": "fe80::1",
	} {
		f := shared.reset()
		wantCode(t, f.send(t, http.MethodPost, "/v1/ipam/"+in+"?owner=health&pool=blue"), http.StatusOK)
		wantCode(t, f.send(t, http.MethodDelete, "/v1/ipam/"+in+"?pool=blue"), http.StatusOK)
		ip := netip.MustParseAddr(want)
		if got := f.engine.restored[0]; got != (engine.RestoreRequest{IP: ip, Owner: "health", Pool: "blue"}) {
			t.Errorf("restore of %s: the engine was called with %+v", in, got)
		}
		if got := f.engine.released[0]; got != (engine.ReleaseRequest{IP: ip, Pool: "blue", Containers: true}) {
			t.Errorf("release of %s: the engine was called with %+v", in, got)
		}
		wantCode(t, f.send(t, http.MethodDelete, "/v1/ipam/"+in+"?pool=blue", "Skip-Release-Delay", "true"), http.StatusOK)
		if got := f.engine.released[1]; !got.SkipDelay {
			t.Errorf("release of %s without the delay: the engine was called with %+v", in, got)
		}
	}
}

func TestAllocateParameters(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	f.engine.got = held("health")
	wantCode(t, f.send(t, http.MethodPost, "/v1/ipam?owner=health&pool=blue&family=ipv6", "Expiration", "true"), http.StatusCreated)
	wantCode(t, f.send(t, http.MethodPost, "/v1/ipam"), http.StatusCreated)
	want := []engine.AllocateRequest{
		{Owner: "health", Pool: "blue", Family: record.IPv6, Expire: true},
		{Pool: "default"},
	}
	for i, got := range f.engine.allocated {
		if got != want[i] {
			t.Errorf("request %d: the engine was called with %+v; want %+v", i, got, want[i])
		}
	}
}

func TestRequestHeaders(t *testing.T) {
	shared := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
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
			r := httptest.NewRequest(http.MethodPost, "/v1/ipam?owner=health", nil)
			for i := 0; i+1 < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			if host := r.Header.Get("Host"); host != "" {
				r.Host = host
			}
			wantCode(t, f.do(t, r), http.StatusCreated)
		})
	}
}

func TestUnknownPaths(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	for target, want := range map[string]int{
		"/v1/endpoint":       http.StatusNotFound,
		"/v1/docs":           http.StatusNotFound,
		"/v1/swagger.json":   http.StatusNotFound,
		"/ipam":              http.StatusNotFound,
		"/v1/ipam/10.0.0.1/": http.StatusMethodNotAllowed,
	} {
		if got := f.send(t, http.MethodGet, target); got.code != want {
			t.Errorf("GET %s: got code %d; want %d", target, got.code, want)
		}
	}
	got := f.send(t, http.MethodPut, "/v1/ipam")
	wantCode(t, got, http.StatusMethodNotAllowed)
	if allow := got.header.Get("Allow"); !strings.Contains(allow, "POST") {
		t.Errorf("Allow is %q; want POST in it", allow)
	}
}

func TestMethodInLowerCase(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	for _, method := range []string{"post", "Post", "pOST"} {
		got := f.send(t, method, "/v1/ipam?owner=router")
		wantCode(t, got, http.StatusMethodNotAllowed)
		if allow := got.header.Get("Allow"); !strings.Contains(allow, "POST") {
			t.Errorf("Allow is %q; want POST in it", allow)
		}
	}
	wantCode(t, f.send(t, "get", "/v1/endpoint"), http.StatusNotFound)
	if n := f.engine.calls(); n != 0 {
		t.Errorf("the engine was called %d times", n)
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
	if got := f.engine.released[0].Pool; got != "blue" {
		t.Errorf("released in pool %q; want blue", got)
	}
	if got := f.send(t, http.MethodGet, "/v1/healthz").body; !strings.Contains(got, `"10.1.2.3":"router"`) {
		t.Errorf("the status has no address of the default pool without its name: %s", got)
	}
	if got := f.send(t, http.MethodGet, "/v1/config").body; !strings.Contains(got, `"ip":"10.1.2.3"`) {
		t.Errorf("the node has another address than the router in the default pool: %s", got)
	}
}
