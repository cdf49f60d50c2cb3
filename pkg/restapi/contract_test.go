package restapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/go-openapi/loads"
	"github.com/go-openapi/spec"
	"github.com/go-openapi/strfmt"
	"github.com/go-openapi/validate"
)

// contract is swagger.yaml, against which every answer is checked.
type contract struct {
	swagger *spec.Swagger
}

// readContract reads swagger.yaml with every $ref replaced by what it means.
func readContract(t testing.TB) contract {
	t.Helper()
	doc, err := loads.Spec("../../swagger.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err = doc.Expanded()
	if err != nil {
		t.Fatal(err)
	}
	return contract{swagger: doc.Spec()}
}

// operation finds what swagger.yaml says of a request; nil if it is not in it.
func (c contract) operation(method, requested string) *spec.Operation {
	requested, ours := strings.CutPrefix(requested, c.swagger.BasePath)
	if !ours {
		return nil
	}
	if ip, ok := strings.CutPrefix(requested, "/ipam/"); ok && !strings.Contains(ip, "/") {
		requested = "/ipam/{ip}"
	}
	item, ok := c.swagger.Paths.Paths[requested]
	if !ok {
		return nil
	}
	switch method {
	case http.MethodGet:
		return item.Get
	case http.MethodPost:
		return item.Post
	case http.MethodDelete:
		return item.Delete
	}
	return nil
}

// check fails the test if an answer is not what swagger.yaml documents, or, for
// a code it does not document, not go-openapi's own {code, message}.
func (c contract) check(t *testing.T, r *http.Request, code int, header http.Header, body []byte) {
	t.Helper()
	op := c.operation(r.Method, path.Clean(r.URL.EscapedPath()))
	if op == nil {
		checkFrameworkError(t, code, body)
		return
	}
	documented, ok := op.Responses.StatusCodeResponses[code]
	if !ok {
		checkFrameworkError(t, code, body)
		return
	}
	c.checkHeaders(t, documented, header)
	if documented.Schema == nil {
		if len(body) != 0 {
			t.Errorf("%s %s answered %d with the body %q; swagger.yaml documents none", r.Method, r.URL.Path, code, body)
		}
		return
	}
	if got := header.Get("Content-Type"); got != "application/json" {
		t.Errorf("%s %s answered Content-Type %q; expected application/json", r.Method, r.URL.Path, got)
	}
	var data any
	if err := json.Unmarshal(body, &data); err != nil {
		t.Errorf("%s %s answered %q: %v", r.Method, r.URL.Path, body, err)
		return
	}
	if err := validate.AgainstSchema(documented.Schema, data, strfmt.Default); err != nil {
		t.Errorf("%s %s answered %d with %s, which swagger.yaml does not allow: %v", r.Method, r.URL.Path, code, body, err)
	}
}

func (c contract) checkHeaders(t *testing.T, documented spec.Response, got http.Header) {
	t.Helper()
	for name, header := range documented.Headers {
		value := got.Get(name)
		if value == "" {
			continue
		}
		if err := validate.Pattern(name, "header", value, header.Pattern); err != nil {
			t.Error(err)
		}
	}
}

func checkFrameworkError(t *testing.T, code int, body []byte) {
	t.Helper()
	if code < http.StatusBadRequest {
		t.Errorf("answered %d, which swagger.yaml does not document", code)
	}
	var answer struct {
		Code    *int    `json:"code"`
		Message *string `json:"message"`
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&answer); err != nil || answer.Code == nil || answer.Message == nil {
		t.Errorf("answered %d with %q; expected code and message: %v", code, body, err)
	}
}

// answer is what a client got.
type answer struct {
	code   int
	header http.Header
	body   string
}

// ask sends one request through the whole handler and checks the answer against
// swagger.yaml. Headers come in pairs of name and value.
func (f *fixture) ask(t *testing.T, method, target string, headers ...string) answer {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return f.do(t, r)
}

func (f *fixture) do(t *testing.T, r *http.Request) answer {
	t.Helper()
	sent := r.Clone(r.Context())
	rec := httptest.NewRecorder()
	f.handler.ServeHTTP(rec, r)
	got := rec.Result()
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	f.contract.check(t, sent, got.StatusCode, got.Header, body)
	return answer{code: got.StatusCode, header: got.Header, body: string(body)}
}

func wantCode(t *testing.T, got answer, code int) {
	t.Helper()
	if got.code != code {
		t.Fatalf("answered %s with %s; expected %s", strconv.Itoa(got.code), got.body, strconv.Itoa(code))
	}
}
