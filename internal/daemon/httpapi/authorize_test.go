package httpapi_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// newGuarded returns a fixture whose requests have a peer; nil if unknown. User 70002 may call.
func newGuarded(t *testing.T, peer *unixsock.Peer) *fixture {
	t.Helper()
	return newFixtureWith(t, httpapi.Options{
		Addressing: dualStack, Callers: unixsock.Callers{UIDs: []int{70002}}, Metrics: http.NotFoundHandler(),
		Peer: func(context.Context) (unixsock.Peer, bool) {
			if peer == nil {
				return unixsock.Peer{}, false
			}
			return *peer, true
		},
	})
}

//evidence:operate/security the API without being a caller, or with a peer unknown to the kernel
func TestAuthorize(t *testing.T) {
	root, allowed, denied := &unixsock.Peer{UID: 0}, &unixsock.Peer{UID: 70002}, &unixsock.Peer{UID: 70001}
	for name, c := range map[string]struct {
		peer           *unixsock.Peer
		method, target string
		want           int
		done           string
	}{
		"root":                   {root, http.MethodPost, "/v1/ipam", http.StatusCreated, "POST /v1/ipam 201"},
		"allowed user":           {allowed, http.MethodPost, "/v1/ipam", http.StatusCreated, "POST /v1/ipam 201"},
		"allocate":               {denied, http.MethodPost, "/v1/ipam", http.StatusForbidden, "POST /v1/ipam 403"},
		"release":                {denied, http.MethodDelete, "/v1/ipam/10.0.0.1", http.StatusForbidden, "DELETE /v1/ipam/{ip} 403"},
		"list":                   {denied, http.MethodGet, "/v1/ipam", http.StatusForbidden, "GET /v1/ipam 403"},
		"config":                 {denied, http.MethodGet, "/v1/config", http.StatusForbidden, "GET /v1/config 403"},
		"metrics":                {denied, http.MethodGet, "/metrics", http.StatusForbidden, ""},
		"unknown path":           {denied, http.MethodGet, "/x", http.StatusForbidden, " 403"},
		"path with dot segments": {denied, http.MethodGet, "/v1/healthz/../ipam", http.StatusForbidden, "GET /v1/ipam 403"},
		"health, POST":           {denied, http.MethodPost, "/v1/healthz", http.StatusForbidden, " 403"},
		"health":                 {denied, http.MethodGet, "/v1/healthz", http.StatusOK, "GET /v1/healthz 200"},
		"health with a query":    {denied, http.MethodGet, "/v1/healthz?brief=true", http.StatusOK, "GET /v1/healthz 200"},
		"unknown peer":           {nil, http.MethodPost, "/v1/ipam", http.StatusForbidden, "POST /v1/ipam 403"},
		"unknown peer, health":   {nil, http.MethodGet, "/v1/healthz", http.StatusOK, "GET /v1/healthz 200"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newGuarded(t, c.peer)
			f.engine.got = held("health")
			w := httptest.NewRecorder()
			f.handler.ServeHTTP(w, httptest.NewRequest(c.method, c.target, nil))
			refused := c.want == http.StatusForbidden
			check.True(t, w.Code == c.want, "status %d with body %q, want %d", w.Code, w.Body, c.want)
			check.Equal(t, "counted requests", strings.Join(f.done, ","), c.done)
			if reason := w.Body.String(); refused && (!strings.HasPrefix(reason, `"`) || c.peer != nil && !strings.Contains(reason, "user ID 70001")) {
				t.Errorf("the reason is %q", reason)
			}
			check.True(t, !refused || f.engine.calls() == 0, "reached the engine")
		})
	}
}

// A refused caller chooses only what health needs, because the request log has what callers choose.
func TestRefusedHealth(t *testing.T) {
	f := newGuarded(t, nil)
	var got *http.Request
	api := httpapi.WithServer(f.handler.Options, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
	r := httptest.NewRequest(http.MethodGet, "/v1/%68ealthz?owner=x&%zz", strings.NewReader("body"))
	for _, name := range []string{"Brief", "Require-K8s-Connectivity", "Accept", "Content-Type", "X-Other"} {
		r.Header.Set(name, name)
	}
	api.ServeHTTP(httptest.NewRecorder(), r)
	if got == nil {
		t.Fatal("the request did not reach the handler")
	}
	want := http.Header{"Brief": {"Brief"}, "Require-K8s-Connectivity": {"Require-K8s-Connectivity"}}
	if got.URL.String() != "/v1/healthz" || !maps.EqualFunc(got.Header, want, slices.Equal) || got.ContentLength != 0 || got.Body != http.NoBody {
		t.Errorf("the handler got %s %v, body of %d bytes", got.URL, got.Header, got.ContentLength)
	}
	if line := f.logLine(t); line.Data["owner"] != nil {
		t.Errorf("the log line has the owner %v", line.Data["owner"])
	}
}

//evidence:operate/security many refused requests, long paths or bodies, to fill the log
func TestRefusalLog(t *testing.T) {
	f := newGuarded(t, &unixsock.Peer{UID: 70001})
	for range 200 {
		f.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/"+strings.Repeat("x", 8<<10), nil))
	}
	f.refusals.Stop()
	size := 0
	for _, line := range f.log.AllEntries() {
		text, err := line.String()
		check.Must(t, err)
		size += len(text)
	}
	last := f.logLine(t)
	if request, _ := last.Data["request"].(string); last.Data["peerUID"] != 70001 || !strings.HasPrefix(request, "POST /v1/xxx") || last.Data["repeated"] != 199 {
		t.Errorf("logged %+v", last.Data)
	}
	check.True(t, size <= 2000, "%d bytes were logged; want one line and one summary", size)
}

func TestHealthState(t *testing.T) {
	for uid, want := range map[int]string{70001: `{"cilium":{"state":"Ok"}}`, 70002: `"msg":"1.2.3"`, 0: `"msg":"1.2.3"`} {
		f := newFixtureWith(t, httpapi.Options{
			Reporter: reporter{models.DelegatedIPAMStatus{Ready: true, Version: "1.2.3"}}, Callers: unixsock.Callers{UIDs: []int{70002}}, StateOnly: true,
		})
		f.peer.UID = uid
		if got := f.send(t, http.MethodGet, "/v1/healthz"); !strings.Contains(got.body, want) {
			t.Errorf("user %d gets %s; want %s", uid, got.body, want)
		}
	}
}
