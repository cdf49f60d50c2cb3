package bridge

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func status(t *testing.T, m *metrics, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	m.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

func TestHealth(t *testing.T) {
	for name, tt := range map[string]struct {
		set              func(f *fixture)
		readyz, healthz  int
		after, exhausted time.Duration
		// text is a part of the response of /readyz.
		text string
	}{
		"serves":           {func(*fixture) {}, 200, 200, time.Hour, 0, "ok"},
		"daemon away":      {func(f *fixture) { f.daemonErr = errAway() }, 503, 200, time.Hour, 0, "ago: DaemonUnavailable: "},
		"for a moment":     {func(f *fixture) { f.daemonErr = errAway() }, 200, 200, time.Minute, 0, "ok"},
		"API server away":  {func(f *fixture) { f.apiErr, f.watchDown = errors.New("away"), true }, 503, 200, time.Hour, 0, "ago: APIServerUnavailable: "},
		"CiliumNode gone":  {func(f *fixture) { f.node = nil }, 503, 200, time.Second, 0, "no address is published in spec.ipam.pool: CiliumNodeMissing: "},
		"plugin exhausted": {func(f *fixture) { f.capacity, f.pods = 4, 5 }, 200, 200, time.Hour, time.Hour, "ok"},
		"request hangs":    {func(f *fixture) { f.latency = time.Hour; delete(f.held, 3) }, 503, 503, 30 * time.Minute, 0, "ago: no request has failed yet"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
				waitForPool(t, f)
				f.update(func() { tt.set(f) })
				advance(tt.after)
				if got, text := status(t, m, "/readyz"); got != tt.readyz || !strings.Contains(text, tt.text) {
					t.Errorf("/readyz: %d %q, want %d with %q", got, text, tt.readyz, tt.text)
				}
				if got, text := status(t, m, "/healthz"); got != tt.healthz {
					t.Errorf("/healthz: %d %q, want %d", got, text, tt.healthz)
				}
				between(t, "of exhaustion", m.exhausted.age(), tt.exhausted-time.Minute, tt.exhausted)
				f.update(func() { f.latency = 0 })
			})
		})
	}
}

// The transport labels requests with the verbs of RBAC.
func TestOperation(t *testing.T) {
	for want, request := range map[string][2]string{
		"get": {http.MethodGet, "/apis/cilium.io/v2/ciliumnodes/worker"}, "list": {http.MethodGet, "/apis/cilium.io/v2/ciliumnodes?limit=1"},
		"watch": {http.MethodGet, "/api/v1/pods?watch=true"}, "patch": {http.MethodPatch, "/apis/cilium.io/v2/ciliumnodes/worker/status"},
		"create": {http.MethodPost, "/api/v1/namespaces/default/events"},
	} {
		if got := operation(httptest.NewRequestWithContext(t.Context(), request[0], request[1], nil)); got != want {
			t.Errorf("%v is %s, want %s", request, got, want)
		}
	}
}
