#!/bin/sh
# go-openapi-repeated.sh: which value has a parameter that a request repeats, in a server that go-swagger generates?
#
# Version: middleware of github.com/go-openapi/runtime v0.33.4, with github.com/go-openapi/loads v0.25.3, Go 1.26, and a
# specification with the parameters owner and expiration of Cilium's IPAM API.
#
# One would guess: the first one, as everywhere in net/http: Request.FormValue, URL.Query().Get and Header.Get. So a log, an
# audit or a quota in front of the API that uses these names the owner that gets the address.
#
# Observed: query and header parameters that are not arrays get the last value, and the others are dropped without an error
# (bindValue in middleware/parameter.go; generated code has the same rule in its bind functions).
#
# Output:
#   net/http: owner first, expiration first
#   go-openapi: 200, owner last, expiration last
#
# Usage: go-openapi-repeated.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the output above,
# and 2 if something is missing.
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

	"github.com/go-openapi/loads"
	"github.com/go-openapi/runtime"
	"github.com/go-openapi/runtime/middleware"
	"github.com/go-openapi/runtime/middleware/untyped"
)

const spec = `{"swagger":"2.0","info":{"title":"t","version":"1"},"consumes":["application/json"],"produces":["application/json"],
	"paths":{"/ipam":{"get":{"operationId":"list","responses":{"200":{"description":"OK"}},"parameters":[
		{"name":"owner","in":"query","type":"string"},{"name":"Expiration","in":"header","type":"string"}]}}}}`

func main() {
	r := httptest.NewRequest(http.MethodGet, "http://localhost/ipam?owner=first&owner=last", nil)
	r.Header.Add("expiration", "first")
	r.Header.Add("expiration", "last")
	fmt.Printf("net/http: owner %s, expiration %s\n", r.URL.Query().Get("owner"), r.Header.Get("expiration"))

	document, err := loads.Analyzed([]byte(spec), "")
	if err != nil {
		panic(err)
	}
	api := untyped.NewAPI(document).WithJSONDefaults()
	var got map[string]any
	api.RegisterOperation(http.MethodGet, "/ipam", runtime.OperationHandlerFunc(func(parameters any) (any, error) {
		got = parameters.(map[string]any)
		return []string{}, nil
	}))
	w := httptest.NewRecorder()
	middleware.Serve(document, api).ServeHTTP(w, r)
	fmt.Printf("go-openapi: %d, owner %s, expiration %s\n", w.Code, got["owner"], got["Expiration"])
}
GO
go mod init example >/dev/null 2>&1
go get github.com/go-openapi/runtime@v0.33.4 github.com/go-openapi/loads@v0.25.3 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
