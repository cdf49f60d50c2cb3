package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The error responses of go-openapi are not in swagger.yaml, but clients get them.
func TestFrameworkErrors(t *testing.T) {
	t.Parallel()
	_, s := empty(t)
	tests := map[string]struct {
		method, path, header, value, body string
		status                            int
	}{
		"404 unknown path":           {method: "GET", path: "/v1/endpoint", status: 404},
		"404 outside the base path":  {method: "GET", path: "/ipam", status: 404},
		"405 unknown method":         {method: "PUT", path: "/v1/ipam", status: 405},
		"405 GET of one address":     {method: "GET", path: "/v1/ipam/10.15.0.2", status: 405},
		"405 method in lower case":   {method: "post", path: "/v1/ipam?owner=a", status: 405},
		"404 method in lower case":   {method: "post", path: "/v1/endpoint", status: 404},
		"415 body of text/plain":     {method: "POST", path: "/v1/ipam?owner=a", header: "Content-Type", value: "text/plain", body: "x", status: 415},
		"422 unknown family":         {method: "POST", path: "/v1/ipam?family=ipx", status: 422},
		"422 owner over 512 bytes":   {method: "POST", path: "/v1/ipam?owner=" + strings.Repeat("a", 513), status: 422},
		"422 owner with a line feed": {method: "POST", path: "/v1/ipam?owner=a%0A", status: 422},
		"406 Accept of text/html":    {method: "GET", path: "/v1/ipam", header: "Accept", value: "text/html", status: 406},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://localhost"+tt.path, strings.NewReader(tt.body))
			harness.Must(t, err)
			if tt.header != "" {
				req.Header.Set(tt.header, tt.value)
			}
			a, err := s.Send(req)
			harness.Must(t, err)
			if a.Status != tt.status {
				t.Errorf("got %s; want status %d", a, tt.status)
			}
		})
	}
	if log := s.Log(); strings.Contains(log, "panic") {
		t.Errorf("there was a panic:\n%s", log)
	}
	if list := s.List(t); len(list) != 0 {
		t.Errorf("after rejected requests the list has %+v", list)
	}
}
