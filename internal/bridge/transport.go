package bridge

import (
	"net/http"
	"path"
	"time"
)

// operations are the values of the label operation of requests to the API server.
func operations() []string { return []string{"get", "list", "watch", "patch", "create"} }

// timedTransport measures the requests to the API server, a watch until its first response.
type timedTransport struct {
	http.RoundTripper
	metrics *metrics
}

// RoundTrip implements http.RoundTripper.
func (t timedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := t.RoundTripper.RoundTrip(r)
	t.metrics.apiDuration.WithLabelValues(operation(r)).Observe(time.Since(start).Seconds())
	return resp, err
}

// operation returns the verb of a request as RBAC has it.
func operation(r *http.Request) string {
	switch {
	case r.Method == http.MethodPatch:
		return "patch"
	case r.Method == http.MethodPost:
		return "create"
	case r.URL.Query().Get("watch") != "":
		return "watch"
	case path.Base(r.URL.Path) == resourceNodes, path.Base(r.URL.Path) == resourcePods:
		return "list"
	default:
		return "get"
	}
}
