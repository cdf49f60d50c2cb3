package bridge

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// status returns the status code of an endpoint.
func status(t *testing.T, m *metrics, path string) int {
	t.Helper()
	w := httptest.NewRecorder()
	m.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code
}

func TestHealth(t *testing.T) {
	for name, tt := range map[string]struct {
		set              func(f *fixture)
		readyz, healthz  int
		after, exhausted time.Duration
	}{
		"serves":           {func(*fixture) {}, 200, 200, time.Hour, 0},
		"sidecar away":     {func(f *fixture) { f.sidecarErr = sidecarAway() }, 503, 200, time.Hour, 0},
		"for a moment":     {func(f *fixture) { f.sidecarErr = sidecarAway() }, 200, 200, time.Minute, 0},
		"API server away":  {func(f *fixture) { f.apiErr, f.watchDown = errors.New("away"), true }, 503, 200, time.Hour, 0},
		"CiliumNode gone":  {func(f *fixture) { f.node = nil }, 503, 200, time.Second, 0},
		"plugin exhausted": {func(f *fixture) { f.capacity, f.pods = 4, 5 }, 200, 200, time.Hour, time.Hour},
		"request hangs":    {func(f *fixture) { f.latency = time.Hour; delete(f.held, 3) }, 503, 503, 30 * time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			runController(t, f, smallSettings(), func(t *testing.T, m *metrics) {
				waitForPool(t, f)
				f.update(func() { tt.set(f) })
				advance(tt.after)
				if got := status(t, m, "/readyz"); got != tt.readyz {
					t.Errorf("/readyz is %d, want %d: %v", got, tt.readyz, m.notReady())
				}
				if got := status(t, m, "/healthz"); got != tt.healthz {
					t.Errorf("/healthz is %d, want %d: %v", got, tt.healthz, m.stuck())
				}
				if got := m.exhausted.age(); got < tt.exhausted-time.Minute || got > tt.exhausted {
					t.Errorf("exhausted for %s, want %s", got, tt.exhausted)
				}
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
		r, err := http.NewRequestWithContext(context.Background(), request[0], request[1], http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if got := operation(r); got != want {
			t.Errorf("%v is %s, want %s", request, got, want)
		}
	}
}
