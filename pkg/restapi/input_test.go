package restapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

func TestABadParameterIsRefusedAsGoOpenAPIDoesAndTheEngineIsNotAsked(t *testing.T) {
	shared := newFixture(t, dualStack, restapi.Report{})
	owners := map[string]string{
		"an owner longer than 512 bytes":                      strings.Repeat("a", 513),
		"an owner of 512 characters that are more bytes":      strings.Repeat("é", 257),
		"an owner with a line feed":                           "a\nb",
		"an owner with a NUL":                                 "a\x00b",
		"an owner with DEL":                                   "a\x7fb",
		"an owner with a C1 control character":                "a\u0085b",
		"an owner that is not UTF-8":                          "a\xffb",
		"an owner longer than 512 bytes that is not UTF-8 by": strings.Repeat("\xff", 513),
	}
	targets := map[string]string{
		"an unknown family":                 "/v1/ipam?family=ipx",
		"a family in capitals":              "/v1/ipam?family=IPX",
		"a query that cannot be decoded":    "/v1/ipam?owner=%zz",
		"a query with an unescaped percent": "/v1/ipam/10.0.0.1?owner=100%",
	}
	for name, owner := range owners {
		targets["allocate for "+name] = "/v1/ipam?owner=" + url.QueryEscape(owner)
		targets["restore for "+name] = "/v1/ipam/10.0.0.1?owner=" + url.QueryEscape(owner)
	}
	for name, target := range targets {
		t.Run(name, func(t *testing.T) {
			f := shared.fresh()
			got := f.ask(t, http.MethodPost, target)
			wantCode(t, got, http.StatusUnprocessableEntity)
			if f.engine.calls() != 0 {
				t.Error("the engine was asked")
			}
		})
	}
}

func TestTheLimitOfAnOwnerIsInBytes(t *testing.T) {
	shared := newFixture(t, dualStack, restapi.Report{})
	for _, owner := range []string{strings.Repeat("a", 512), strings.Repeat("é", 256), "namespace/pod", "with space"} {
		f := shared.fresh()
		f.engine.got = held("health")
		wantCode(t, f.ask(t, http.MethodPost, "/v1/ipam?owner="+url.QueryEscape(owner)), http.StatusCreated)
		if got := f.engine.allocated[0].Owner; got != owner {
			t.Errorf("the engine was asked for owner %q; expected %q", got, owner)
		}
	}
}

func TestAnOwnerThatIsTooLongIsToldTheLimit(t *testing.T) {
	f := newFixture(t, dualStack, restapi.Report{})
	got := f.ask(t, http.MethodPost, "/v1/ipam?owner="+url.QueryEscape(strings.Repeat("é", 257)))
	var body struct {
		Code    int
		Message string
	}
	if err := json.Unmarshal([]byte(got.body), &body); err != nil {
		t.Fatal(err)
	}
	if body.Code != 603 || body.Message != "owner in query should be at most 512 bytes long" {
		t.Errorf("answered %s; expected code 603 and the limit", got.body)
	}
}

func TestAMalformedAddressIsInvalidAndTheEngineIsNotAsked(t *testing.T) {
	shared := newFixture(t, dualStack, restapi.Report{})
	for name, ip := range map[string]string{
		"a word":                      "health",
		"an address with a prefix":    "10.0.0.1/24",
		"an IPv6 address with a zone": "fe80::1%eth0",
		"an octet over 255":           "10.0.0.256",
		"a leading zero":              "10.0.0.01",
		"the unspecified address":     "0.0.0.0",
		"the IPv6 unspecified":        "::",
		"a 4-in-6 unspecified":        "::ffff:0.0.0.0",
		"a multicast address":         "224.0.0.1",
		"an IPv6 multicast address":   "ff02::1",
		"a 4-in-6 multicast address":  "::ffff:224.0.0.1",
	} {
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			t.Run(method+" of "+name, func(t *testing.T) {
				f := shared.fresh()
				got := f.ask(t, method, "/v1/ipam/"+url.PathEscape(ip))
				wantCode(t, got, http.StatusBadRequest)
				if f.engine.calls() != 0 {
					t.Error("the engine was asked")
				}
				if f.outcome(t).Data["error"] == nil {
					t.Error("the log does not say what was wrong")
				}
			})
		}
	}
}

func TestAParticularAddressReachesTheEngineInItsOwnFamily(t *testing.T) {
	shared := newFixture(t, dualStack, restapi.Report{})
	for in, want := range map[string]string{
		"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3", "FD00::0:1": "fd00::1", "fe80::1": "fe80::1",
	} {
		f := shared.fresh()
		wantCode(t, f.ask(t, http.MethodPost, "/v1/ipam/"+in+"?owner=health&pool=blue"), http.StatusOK)
		wantCode(t, f.ask(t, http.MethodDelete, "/v1/ipam/"+in+"?pool=blue"), http.StatusOK)
		ip := netip.MustParseAddr(want)
		if got := f.engine.restored[0]; got != (attachment.RestoreRequest{IP: ip, Owner: "health", Pool: "blue"}) {
			t.Errorf("restore of %s asked for %+v", in, got)
		}
		if got := f.engine.released[0]; got != (attachment.ReleaseRequest{IP: ip, Pool: "blue"}) {
			t.Errorf("release of %s asked for %+v", in, got)
		}
		wantCode(t, f.ask(t, http.MethodDelete, "/v1/ipam/"+in+"?pool=blue", "Skip-Release-Delay", "true"), http.StatusOK)
		if got := f.engine.released[1]; !got.SkipDelay {
			t.Errorf("release of %s without the delay asked for %+v", in, got)
		}
	}
}

func TestEveryParameterOfAnAllocationReachesTheEngine(t *testing.T) {
	f := newFixture(t, dualStack, restapi.Report{})
	f.engine.got = held("health")
	wantCode(t, f.ask(t, http.MethodPost, "/v1/ipam?owner=health&pool=blue&family=ipv6", "Expiration", "true"), http.StatusCreated)
	wantCode(t, f.ask(t, http.MethodPost, "/v1/ipam"), http.StatusCreated)
	want := []attachment.AllocateRequest{
		{Owner: "health", Pool: "blue", Family: record.IPv6, Expire: true},
		{Pool: "default"},
	}
	for i, got := range f.engine.allocated {
		if got != want[i] {
			t.Errorf("request %d asked for %+v; expected %+v", i, got, want[i])
		}
	}
}

func TestWhatCurlSendsIsAccepted(t *testing.T) {
	shared := newFixture(t, dualStack, restapi.Report{})
	for name, headers := range map[string][]string{
		"without any header":            nil,
		"with curl's own headers":       {"Accept", "*/*", "User-Agent", "curl/8"},
		"with an empty body of a form":  {"Content-Type", "application/x-www-form-urlencoded", "Content-Length", "0"},
		"with a JSON content type":      {"Content-Type", "application/json", "Accept", "application/json"},
		"with a charset in Accept":      {"Accept", "application/json; charset=utf-8"},
		"with a Host that is not known": {"Host", "whatever"},
	} {
		t.Run(name, func(t *testing.T) {
			f := shared.fresh()
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

func TestWhatIsNotInTheContractIsNotServed(t *testing.T) {
	f := newFixture(t, dualStack, restapi.Report{})
	for target, want := range map[string]int{
		"/v1/endpoint":       http.StatusNotFound,
		"/v1/docs":           http.StatusNotFound,
		"/v1/swagger.json":   http.StatusNotFound,
		"/ipam":              http.StatusNotFound,
		"/v1/ipam/10.0.0.1/": http.StatusMethodNotAllowed,
	} {
		if got := f.ask(t, http.MethodGet, target); got.code != want {
			t.Errorf("GET %s answered %d; expected %d", target, got.code, want)
		}
	}
	got := f.ask(t, http.MethodPut, "/v1/ipam")
	wantCode(t, got, http.StatusMethodNotAllowed)
	if allow := got.header.Get("Allow"); !strings.Contains(allow, "POST") {
		t.Errorf("Allow is %q; expected POST in it", allow)
	}
}
