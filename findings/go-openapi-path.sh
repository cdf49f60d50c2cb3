#!/bin/sh
# go-openapi-path.sh: which paths lead to an operation of a server that go-swagger generates?
#
# Version: middleware of github.com/go-openapi/runtime v0.33.4, with github.com/go-openapi/loads v0.25.3, Go 1.26, and a
# specification with the one path of Cilium's IPAM API.
#
# One would guess: the path of the specification, as with http.ServeMux, which redirects a client with another spelling of
# a path to the clean one. So a handler in front of the API, for limits, access or metrics, may compare r.URL.Path.
#
# Observed: the router cleans the path itself and does not redirect, so each spelling is served, and the handler in front
# sees it as it was sent (NewRouter and Lookup in middleware/router.go). It has to clean it in the same way:
# path.Clean(r.URL.EscapedPath()).
#
# Output:
#   http.ServeMux: /v1/ipam 200, /v1/ipam/ 404, //v1/ipam 307, /v1/./ipam 307
#   go-openapi: /v1/ipam 200, /v1/ipam/ 200, //v1/ipam 200, /v1/./ipam 200
#   the handler in front sees: /v1/ipam, /v1/ipam/, //v1/ipam, /v1/./ipam
#
# Usage: go-openapi-path.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the output above, and
# 2 if something is missing.
set -eu
self=$(realpath "$0")
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS='' GO111MODULE=on CGO_ENABLED=0
cat >main.go <<'GO'
package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/go-openapi/loads"
	"github.com/go-openapi/runtime"
	"github.com/go-openapi/runtime/middleware"
	"github.com/go-openapi/runtime/middleware/untyped"
)

const spec = `{"swagger":"2.0","info":{"title":"t","version":"1"},"basePath":"/v1","consumes":["application/json"],"produces":["application/json"],
	"paths":{"/ipam":{"get":{"operationId":"list","responses":{"200":{"description":"OK"}}}}}}`

var paths = []string{"/v1/ipam", "/v1/ipam/", "//v1/ipam", "/v1/./ipam"}

func observe(name string, handler http.Handler) {
	var codes []string
	for _, path := range paths {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		codes = append(codes, fmt.Sprintf("%s %d", path, w.Code))
	}
	fmt.Printf("%s: %s\n", name, strings.Join(codes, ", "))
}

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/ipam", func(http.ResponseWriter, *http.Request) {})
	observe("http.ServeMux", mux)

	document, err := loads.Analyzed([]byte(spec), "")
	if err != nil {
		panic(err)
	}
	api := untyped.NewAPI(document).WithJSONDefaults()
	api.RegisterOperation(http.MethodGet, "/ipam", runtime.OperationHandlerFunc(func(any) (any, error) { return []string{}, nil }))
	var seen []string
	served := middleware.Serve(document, api)
	observe("go-openapi", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.Path)
		served.ServeHTTP(w, r)
	}))
	fmt.Println("the handler in front sees: " + strings.Join(seen, ", "))
}
GO
go mod init example >/dev/null 2>&1
go get github.com/go-openapi/runtime@v0.33.4 github.com/go-openapi/loads@v0.25.3 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
