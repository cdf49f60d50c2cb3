package contract

import (
	"net/http"
	"strings"
	"testing"
)

// What go-openapi answers by itself is not in swagger.yaml; clients see it all
// the same.
func TestTheFrameworksOwnAnswers(t *testing.T) {
	t.Parallel()
	_, s := empty(t)
	tests := map[string]struct {
		method, path, header, value, body string
		status                            int
	}{
		"404 for a path that does not exist":     {method: "GET", path: "/v1/endpoint", status: 404},
		"404 outside the base path":              {method: "GET", path: "/ipam", status: 404},
		"405 for a method that is not there":     {method: "PUT", path: "/v1/ipam", status: 405},
		"405 for a read of one address":          {method: "GET", path: "/v1/ipam/10.15.0.2", status: 405},
		"415 for a body that is no JSON":         {method: "POST", path: "/v1/ipam?owner=a", header: "Content-Type", value: "text/plain", body: "x", status: 415},
		"422 for an unknown family":              {method: "POST", path: "/v1/ipam?family=ipx", status: 422},
		"422 for an owner that is too long":      {method: "POST", path: "/v1/ipam?owner=" + strings.Repeat("a", 513), status: 422},
		"422 for an owner with a line feed":      {method: "POST", path: "/v1/ipam?owner=a%0A", status: 422},
		"406 for an answer that we do not speak": {method: "GET", path: "/v1/ipam", header: "Accept", value: "text/html", status: 406},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://localhost"+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if tt.header != "" {
				req.Header.Set(tt.header, tt.value)
			}
			a, err := s.Send(req)
			if err != nil {
				t.Fatal(err)
			}
			if a.Status != tt.status {
				t.Errorf("answered %s; want status %d", a, tt.status)
			}
		})
	}
	if list := s.List(t); len(list) != 0 {
		t.Errorf("after requests that were all refused the list has %+v", list)
	}
}
