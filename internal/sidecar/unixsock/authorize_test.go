package unixsock

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

func TestCallersAllow(t *testing.T) {
	foreign := Peer{UID: 70001, GID: 70002, Groups: []int{70003, 70004}}
	for name, c := range map[string]struct {
		callers Callers
		peer    Peer
		want    bool
	}{
		"root":                               {Callers{}, Peer{UID: 0, GID: 0}, true},
		"our own user":                       {Callers{}, Peer{UID: os.Geteuid(), GID: 70002}, true},
		"another user":                       {Callers{}, foreign, false},
		"allowed user":                       {Callers{UIDs: []int{1, 70001}}, foreign, true},
		"allowed primary group":              {Callers{GIDs: []int{70002}}, foreign, true},
		"allowed supplementary group":        {Callers{GIDs: []int{70004}}, foreign, true},
		"user ID as group, group ID as user": {Callers{UIDs: []int{70002, 70003}, GIDs: []int{70001}}, foreign, false},
		"root's group":                       {Callers{}, Peer{UID: 70001, GID: 0}, false},
		"other IDs":                          {Callers{UIDs: []int{5}, GIDs: []int{6}}, foreign, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.callers.Allow(c.peer); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

func TestOwnUser(t *testing.T) {
	path, reached := serve(t, Callers{})
	dial := func() (net.Conn, error) { return net.Dial("unix", path) }
	resp := sendRequest(t, dial, http.MethodPost, "/v1/ipam")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %s", resp.Status)
	}
	if got := <-reached; got.PID != os.Getpid() || got.UID != os.Geteuid() || got.GID != os.Getegid() {
		t.Errorf("peer %+v, want PID %d, user %d, group %d", got, os.Getpid(), os.Geteuid(), os.Getegid())
	}
}

func TestForeignUser(t *testing.T) {
	for name, c := range map[string]struct {
		method, target string
		want           int
	}{
		"allocate":               {http.MethodPost, "/v1/ipam", http.StatusForbidden},
		"release":                {http.MethodDelete, "/v1/ipam/10.0.0.1", http.StatusForbidden},
		"list":                   {http.MethodGet, "/v1/ipam", http.StatusForbidden},
		"config":                 {http.MethodGet, "/v1/config", http.StatusForbidden},
		"unknown path":           {http.MethodGet, "/x", http.StatusForbidden},
		"path with dot segments": {http.MethodGet, "/v1/healthz/../ipam", http.StatusForbidden},
		"health, POST":           {http.MethodPost, "/v1/healthz", http.StatusForbidden},
		"health":                 {http.MethodGet, "/v1/healthz", http.StatusOK},
		"health with a query":    {http.MethodGet, "/v1/healthz?brief=true", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			path, reached := serve(t, Callers{UIDs: []int{70002}})
			resp := sendRequest(t, func() (net.Conn, error) { return dialAs(t, path, 70001) }, c.method, c.target)
			if resp.StatusCode != c.want {
				t.Errorf("status %s, want %d", resp.Status, c.want)
			}
			if body, err := io.ReadAll(resp.Body); err != nil || len(body) != 0 {
				t.Errorf("body %q, %v", body, err)
			}
			if got, want := len(reached), map[int]int{http.StatusOK: 1}[c.want]; got != want {
				t.Errorf("%d requests reached the handler; want %d", got, want)
			}
		})
	}
}

func TestAllowedUser(t *testing.T) {
	for name, callers := range map[string]Callers{
		"user":                {UIDs: []int{70001}},
		"primary group":       {GIDs: []int{70001}},
		"supplementary group": {GIDs: []int{70100}},
	} {
		t.Run(name, func(t *testing.T) {
			path, reached := serve(t, callers)
			dial := func() (net.Conn, error) { return dialAs(t, path, 70001, 70099, 70100) }
			if resp := sendRequest(t, dial, http.MethodPost, "/v1/ipam"); resp.StatusCode != http.StatusOK {
				t.Fatalf("status %s", resp.Status)
			}
			if got := <-reached; got.UID != 70001 {
				t.Errorf("peer %+v", got)
			}
		})
	}
}

//evidence:operate/security L3
func TestUnknownPeer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	serveOn(t, Server(authorize(http.NotFoundHandler(), Callers{}, silentRefusals()), silentLogger()), l)
	dial := func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
	if resp := sendRequest(t, dial, http.MethodGet, "/v1/ipam"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %s", resp.Status)
	}
}

// TestAuthorize needs no root: it puts the peer into the context in place of Server.
func TestAuthorize(t *testing.T) {
	for name, c := range map[string]struct {
		peer           *Peer
		method, target string
		want           int
	}{
		"root":                       {&Peer{UID: 0}, http.MethodPost, "/v1/ipam", http.StatusOK},
		"allowed user":               {&Peer{UID: 70002}, http.MethodPost, "/v1/ipam", http.StatusOK},
		"another user":               {&Peer{UID: 70001}, http.MethodPost, "/v1/ipam", http.StatusForbidden},
		"another user, health":       {&Peer{UID: 70001}, http.MethodGet, "/v1/healthz", http.StatusOK},
		"another user, health, POST": {&Peer{UID: 70001}, http.MethodPost, "/v1/healthz", http.StatusForbidden},
		"unknown peer":               {nil, http.MethodPost, "/v1/ipam", http.StatusForbidden},
		"unknown peer, health":       {nil, http.MethodGet, "/v1/healthz", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			reached := false
			h := authorize(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }), Callers{UIDs: []int{70002}}, silentRefusals())
			ctx := t.Context()
			if c.peer != nil {
				ctx = context.WithValue(ctx, peerKey{}, *c.peer)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, c.method, c.target, nil))
			if w.Code != c.want || w.Body.Len() != 0 {
				t.Errorf("status %d with body %q, want %d without one", w.Code, w.Body, c.want)
			}
			if reason := w.Header().Get("Delegated-Ipam-Reason"); (reason != "") != (c.want == http.StatusForbidden) ||
				c.peer != nil && reason != "" && !strings.Contains(reason, "user ID 70001") {
				t.Errorf("the reason is %q", reason)
			}
			if reached != (c.want == http.StatusOK) {
				t.Errorf("reached the handler: %t", reached)
			}
		})
	}
}

// A refused caller must not choose more of a health request than what health needs: the request log
// has what callers choose.
//
//evidence:operate/security L13
func TestRefusedHealth(t *testing.T) {
	var got *http.Request
	h := authorize(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }), Callers{}, silentRefusals())
	r := httptest.NewRequest(http.MethodGet, "/v1/%68ealthz?owner=x&%zz", strings.NewReader("body"))
	for _, name := range []string{"Brief", "Require-K8s-Connectivity", "Accept", "Content-Type", "X-Other"} {
		r.Header.Set(name, name)
	}
	h.ServeHTTP(httptest.NewRecorder(), r)
	if got == nil {
		t.Fatal("the request did not reach the handler")
	}
	want := http.Header{"Brief": {"Brief"}, "Require-K8s-Connectivity": {"Require-K8s-Connectivity"}}
	if got.URL.String() != "/v1/healthz" || !maps.EqualFunc(got.Header, want, slices.Equal) || got.ContentLength != 0 || got.Body != http.NoBody {
		t.Errorf("the handler got %s %v, body of %d bytes", got.URL, got.Header, got.ContentLength)
	}
}

//evidence:operate/security L12
func TestRefusalLog(t *testing.T) {
	var out strings.Builder
	log := logrus.New()
	log.SetOutput(&out)
	refusals := logging.NewRepeated(log, time.Hour)
	h := authorize(http.NotFoundHandler(), Callers{}, refusals)
	for range 200 {
		ctx := context.WithValue(t.Context(), peerKey{}, Peer{UID: 70001})
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/"+strings.Repeat("x", 8<<10), nil))
	}
	refusals.Stop()
	for _, want := range []string{"peerUID=70001", "POST /v1/xxx", "repeated=199"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("logged %q; want %q in it", out.String(), want)
		}
	}
	if out.Len() > 2000 {
		t.Errorf("%d bytes were logged; want one line and one summary", out.Len())
	}
}

// authorize is Authorize with the same handler for health.
func authorize(next http.Handler, callers Callers, refusals *logging.Repeated) http.Handler {
	return Authorize(next, next, callers, refusals)
}

func TestHealthHandler(t *testing.T) {
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Handler", name) })
	}
	h := Authorize(named("api"), named("health"), Callers{UIDs: []int{70002}}, silentRefusals())
	for uid, want := range map[int]string{70001: "health", 70002: "api", 0: "api"} {
		ctx := context.WithValue(t.Context(), peerKey{}, Peer{UID: uid})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/healthz", nil))
		if got := w.Header().Get("Handler"); got != want {
			t.Errorf("user %d is served by %q; want %q", uid, got, want)
		}
	}
}
