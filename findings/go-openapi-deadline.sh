#!/bin/sh
# go-openapi-deadline.sh: how long does a generated client of an API wait, given a context with a deadline?
#
# Version: api/v1/client/ipam of github.com/cilium/cilium v1.20.2, which go-swagger has generated, with the version of
# github.com/go-openapi/runtime that it requires, and a server which allocates and answers after 31 s.
#
# One would guess: until the deadline, as with net/http. Parameters are made by NewPostIpamParams or by
# NewPostIpamParamsWithContext, which seem to differ in how the context is given.
#
# Observed: NewPostIpamParams sets a timeout of 30 s, which WithContext leaves, so the call ends after 30 s whatever the
# deadline, with the error of an expired context. The server goes on, so the address is allocated and its caller does not
# know it. NewPostIpamParamsWithContext sets no timeout, and WithTimeout replaces it (NewPostIpamParamsWithTimeout in
# post_ipam_parameters.go, DefaultTimeout in client/runtime.go of the runtime).
#
# Output:
#   NewPostIpamParamsWithContext, 60 s: answer 10.1.0.2; the server allocated 10.1.0.2
#   NewPostIpamParams and WithContext, 60 s: context deadline exceeded; the server allocated 10.1.0.2
#   the same and WithTimeout(60 s): answer 10.1.0.2; the server allocated 10.1.0.2
#
# Usage: go-openapi-deadline.sh. It needs go in PATH, and some minutes for the first build. The exit status is 1 if the
# behaviour differs from the output above, and 2 if something is missing.
set -eu
self=$(realpath "$0")
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/go-openapi/runtime/client"
	"github.com/go-openapi/strfmt"

	"github.com/cilium/cilium/api/v1/client/ipam"
)

func observe(params func(context.Context) *ipam.PostIpamParams) string {
	allocated := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(31 * time.Second)
		allocated <- "10.1.0.2"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"address":{"ipv4":"10.1.0.2"},"host-addressing":{}}`)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	transport := client.New(strings.TrimPrefix(server.URL, "http://"), "/v1", []string{"http"})
	result := context.DeadlineExceeded.Error()
	switch answer, err := ipam.New(transport, strfmt.Default).PostIpam(params(ctx)); {
	case err == nil:
		result = "answer " + answer.Payload.Address.IPv4
	case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
		result = err.Error()
	}
	return result + "; the server allocated " + <-allocated
}

func main() {
	cases := []struct {
		name   string
		params func(context.Context) *ipam.PostIpamParams
	}{
		{"NewPostIpamParamsWithContext, 60 s", ipam.NewPostIpamParamsWithContext},
		{"NewPostIpamParams and WithContext, 60 s", func(ctx context.Context) *ipam.PostIpamParams {
			return ipam.NewPostIpamParams().WithContext(ctx)
		}},
		{"the same and WithTimeout(60 s)", func(ctx context.Context) *ipam.PostIpamParams {
			return ipam.NewPostIpamParams().WithContext(ctx).WithTimeout(time.Minute)
		}},
	}
	results := make([]string, len(cases))
	var wg sync.WaitGroup
	for i, c := range cases {
		wg.Go(func() { results[i] = observe(c.params) })
	}
	wg.Wait()
	for i, c := range cases {
		fmt.Printf("%s: %s\n", c.name, results[i])
	}
}
GO
export GOFLAGS='' GO111MODULE=on CGO_ENABLED=0
go mod init example >/dev/null 2>&1
go mod edit -require github.com/cilium/cilium@v1.20.2
go build -mod=mod -o observe main.go >/dev/null 2>&1 || exit 2
./observe >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
