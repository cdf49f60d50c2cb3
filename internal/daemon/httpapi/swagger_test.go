package httpapi_test

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-openapi/loads"
	"github.com/go-openapi/spec"
	"github.com/go-openapi/strfmt"
	"github.com/go-openapi/validate"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

type contract struct {
	swagger *spec.Swagger
}

// readContract reads swagger.yaml once.
var readContract = sync.OnceValues(func() (contract, error) {
	doc, err := loads.Spec("../../../swagger.yaml")
	if err == nil {
		doc, err = doc.Expanded()
	}
	if err != nil {
		return contract{}, err
	}
	return contract{swagger: doc.Spec()}, nil
})

// operation returns the operation of a request in swagger.yaml; nil if there is none.
func (c contract) operation(method, requested string) *spec.Operation {
	requested, ok := strings.CutPrefix(requested, c.swagger.BasePath)
	if !ok {
		return nil
	}
	if ip, ok := strings.CutPrefix(requested, "/ipam/"); ok && !strings.Contains(ip, "/") {
		requested = "/ipam/{ip}"
	}
	item := c.swagger.Paths.Paths[requested]
	return map[string]*spec.Operation{
		http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodDelete: item.Delete,
	}[method]
}

// response returns what swagger.yaml documents for a code of an operation; false if it documents none. The
// operation is nil for a path or method that is not in it.
func (c contract) response(op *spec.Operation, code int) (spec.Response, bool) {
	if op != nil {
		if documented, ok := op.Responses.StatusCodeResponses[code]; ok {
			return documented, true
		}
	}
	other := c.swagger.Responses["other-error"]
	codes, _ := other.Extensions.GetStringSlice("x-delegated-ipam-codes")
	return other, slices.Contains(codes, strconv.Itoa(code)) || op == nil && slices.Contains([]int{http.StatusNotFound, http.StatusMethodNotAllowed}, code)
}

// check wants a response that swagger.yaml documents.
func (c contract) check(t *testing.T, r *http.Request, code int, header http.Header, body []byte) {
	t.Helper()
	documented, ok := c.response(c.operation(r.Method, path.Clean(r.URL.EscapedPath())), code)
	if !ok {
		t.Errorf("%s %s: swagger.yaml does not document the code %d", r.Method, r.URL.Path, code)
		return
	}
	for name, documented := range documented.Headers {
		if value := header.Get(name); value != "" {
			if err := validate.Pattern(name, "header", value, documented.Pattern); err != nil {
				t.Error(err)
			}
		}
	}
	if documented.Schema == nil {
		if len(body) != 0 {
			t.Errorf("%s %s: code %d with the body %q; swagger.yaml documents none", r.Method, r.URL.Path, code, body)
		}
		return
	}
	if got := header.Get("Content-Type"); got != "application/json" {
		t.Errorf("%s %s: Content-Type %q; want application/json", r.Method, r.URL.Path, got)
	}
	var data any
	if err := json.Unmarshal(body, &data); err != nil {
		t.Errorf("%s %s: body %q: %v", r.Method, r.URL.Path, body, err)
		return
	}
	if err := validate.AgainstSchema(documented.Schema, data, strfmt.Default); err != nil {
		t.Errorf("%s %s: code %d with %s, which swagger.yaml does not allow: %v", r.Method, r.URL.Path, code, body, err)
	}
}

type received struct {
	code   int
	header http.Header
	body   string
}

// send sends a request, with pairs of header name and value, and validates the response against swagger.yaml.
func (f *fixture) send(t *testing.T, method, target string, headers ...string) received {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Host = cmp.Or(r.Header.Get("Host"), r.Host)
	return f.do(t, r)
}

func (f *fixture) do(t *testing.T, r *http.Request) received {
	t.Helper()
	sent := r.Clone(r.Context())
	rec := httptest.NewRecorder()
	f.handler.ServeHTTP(rec, r)
	got := rec.Result()
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	check.Must(t, err)
	f.contract.check(t, sent, got.StatusCode, got.Header, body)
	return received{code: got.StatusCode, header: got.Header, body: string(body)}
}

func wantCode(t *testing.T, got received, code int) {
	t.Helper()
	if got.code != code {
		t.Fatalf("got code %d with %s; want %d", got.code, got.body, code)
	}
}
