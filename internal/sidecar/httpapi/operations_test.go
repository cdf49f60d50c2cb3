package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

func TestOperation(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	f.handler.Metrics = http.NotFoundHandler()
	for request, want := range map[string]string{
		"POST /v1/ipam?owner=x":        "POST /v1/ipam 201",
		"POST /v1/ipam/10.0.0.1":       "POST /v1/ipam/{ip} 200",
		"DELETE /v1/ipam/fd00::1":      "DELETE /v1/ipam/{ip} 200",
		"GET /v1/healthz":              "GET /v1/healthz 200",
		"DELETE /v1/ipam?owner=x":      "DELETE /v1/ipam 200",
		"GET /v1/ipam/10.0.0.1":        " 405",
		"GET /v1/nothing":              " 404",
		"GET /":                        " 404",
		"BREW /v1/ipam":                " 405",
		"post /v1/ipam":                " 405",
		"Get /v1/healthz":              " 405",
		"DELETE /v1/ipam/10.0.0.1/etc": " 404",
		"GET /metrics":                 "",
		"POST /metrics":                " 404",
	} {
		method, path, _ := strings.Cut(request, " ")
		f.reset()
		f.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, http.NoBody))
		if got := strings.Join(f.done, ","); got != want {
			t.Errorf("%s: counted as %q; want %q", request, got, want)
		}
		if operation, _, _ := strings.Cut(want, " 2"); strings.Contains(want, " 2") && f.handler.Operations()[operation] == nil {
			t.Errorf("%s is not in Operations", operation)
		}
	}
	if codes := f.handler.Operations()["POST /v1/ipam"]; !slices.Contains(codes, http.StatusCreated) || !slices.Contains(codes, http.StatusBadGateway) || !slices.IsSorted(codes) {
		t.Errorf("the codes of POST /v1/ipam are %v", codes)
	}
}

// sending calls a function before the header of a response is sent.
type sending struct {
	http.ResponseWriter
	before func()
}

func (s sending) WriteHeader(code int) {
	s.before()
	s.ResponseWriter.WriteHeader(code)
}

func TestCountedBeforeResponse(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	sent := false
	w := sending{httptest.NewRecorder(), func() {
		sent = true
		if !slices.Equal(f.done, []string{"GET /v1/config 200"}) {
			t.Errorf("counted %q before the response", f.done)
		}
	}}
	f.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/config", http.NoBody))
	if !sent {
		t.Error("there was no response")
	}
}
