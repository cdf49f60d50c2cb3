#!/bin/sh
# go-openapi-header.sh: does the untyped API of go-openapi find a header parameter?
#
# Version: middleware of github.com/go-openapi/runtime v0.33.4, with github.com/go-openapi/loads v0.25.3, Go 1.26, and a
# specification with a header parameter that is spelt as in Cilium's IPAM API, and one in Go's canonical spelling.
#
# One would guess: yes. Names of header fields have no case (RFC 9110, section 5.1), and the server that go-swagger generates
# from the same specification finds both, because it asks for the canonical name.
#
# Observed: the untyped API asks for the name as the specification spells it, in a map whose keys are canonical (bindHeader in
# middleware/parameter.go). A parameter with a small first letter is never found: an optional one is dropped without an error,
# and a required one is refused as missing although it was sent. A contract test over the untyped API does not see the header
# that the real server acts upon.
#
# Output:
#   optional: 200, expiration "", Expiration "sent"
#   required: 422, expiration in header is required
#
# Usage: go-openapi-header.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the output above, and
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
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-openapi/loads"
	"github.com/go-openapi/runtime"
	"github.com/go-openapi/runtime/middleware"
	"github.com/go-openapi/runtime/middleware/untyped"
)

// call sends a request with header fields to a server with a header parameter of each name, and returns the response and
// what the handler got.
func call(required bool, names ...string) (*httptest.ResponseRecorder, map[string]any) {
	var parameters []map[string]any
	r := httptest.NewRequest(http.MethodGet, "http://localhost/ipam", nil)
	for _, name := range names {
		parameters = append(parameters, map[string]any{"name": name, "in": "header", "type": "string", "required": required})
		r.Header.Set(name, "sent")
	}
	spec, _ := json.Marshal(map[string]any{
		"swagger": "2.0", "info": map[string]any{"title": "t", "version": "1"},
		"consumes": []string{"application/json"}, "produces": []string{"application/json"},
		"paths": map[string]any{"/ipam": map[string]any{"get": map[string]any{
			"operationId": "list", "parameters": parameters, "responses": map[string]any{"200": map[string]any{"description": "OK"}},
		}}},
	})
	document, err := loads.Analyzed(spec, "")
	if err != nil {
		panic(err)
	}
	api := untyped.NewAPI(document).WithJSONDefaults()
	got := map[string]any{}
	api.RegisterOperation(http.MethodGet, "/ipam", runtime.OperationHandlerFunc(func(parameters any) (any, error) {
		got = parameters.(map[string]any)
		return []string{}, nil
	}))
	w := httptest.NewRecorder()
	middleware.Serve(document, api).ServeHTTP(w, r)
	return w, got
}

func main() {
	lower, got := call(false, "expiration")
	_, canonical := call(false, "Expiration")
	fmt.Printf("optional: %d, expiration %q, Expiration %q\n", lower.Code, got["expiration"], canonical["Expiration"])
	w, _ := call(true, "expiration")
	var refused struct{ Message string }
	_ = json.Unmarshal(w.Body.Bytes(), &refused)
	fmt.Printf("required: %d, %s\n", w.Code, refused.Message)
}
GO
go mod init example >/dev/null 2>&1
go get github.com/go-openapi/runtime@v0.33.4 github.com/go-openapi/loads@v0.25.3 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
