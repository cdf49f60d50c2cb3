package bridge

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

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
