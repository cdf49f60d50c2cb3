package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/httpapi"
)

func TestOperation(t *testing.T) {
	log, _ := test.NewNullLogger()
	api, err := httpapi.New(httpapi.Options{Engine: &fakeEngine{}, Reporter: reporter{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]string{
		"POST /v1/ipam?owner=x":        "POST /v1/ipam",
		"POST /v1/ipam/10.0.0.1":       "POST /v1/ipam/{ip}",
		"DELETE /v1/ipam/fd00::1":      "DELETE /v1/ipam/{ip}",
		"GET /v1/healthz":              "GET /v1/healthz",
		"DELETE /v1/ipam?owner=x":      "DELETE /v1/ipam",
		"GET /v1/ipam/10.0.0.1":        "",
		"GET /v1/nothing":              "",
		"GET /":                        "",
		"BREW /v1/ipam":                "",
		"post /v1/ipam":                "",
		"Get /v1/healthz":              "",
		"DELETE /v1/ipam/10.0.0.1/etc": "",
	} {
		method, path, _ := strings.Cut(request, " ")
		got, _ := api.Operation(httptest.NewRequest(method, path, http.NoBody))
		if _, known := api.Operations()[got]; got != want || known != (want != "") {
			t.Errorf("%s: got operation %q, in Operations: %t; want %q", request, got, known, want)
		}
	}
	if codes := api.Operations()["POST /v1/ipam"]; !slices.Contains(codes, http.StatusCreated) || !slices.Contains(codes, http.StatusBadGateway) || !slices.IsSorted(codes) {
		t.Errorf("the codes of POST /v1/ipam are %v", codes)
	}
}
