package requestid_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/requestid"
)

// send returns the ID in the context of a request with these IDs, and that of its response.
func send(t *testing.T, ids ...string) (inContext, inResponse string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/v1/config", nil)
	for _, id := range ids {
		r.Header.Add("X-Request-ID", id)
	}
	rec := httptest.NewRecorder()
	requestid.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inContext = logging.RequestID(r.Context())
	})).ServeHTTP(rec, r)
	values := rec.Header().Values(requestid.Header)
	if len(values) != 1 {
		t.Fatalf("the response has the IDs %q; want one", values)
	}
	return inContext, values[0]
}

func TestCallerID(t *testing.T) {
	for _, id := range []string{"a", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "A_z.9", strings.Repeat("x", 64)} {
		if inContext, inResponse := send(t, id); inContext != id || inResponse != id {
			t.Errorf("the context has %q, the response %q; want %q", inContext, inResponse, id)
		}
	}
}

func TestGeneratedID(t *testing.T) {
	seen := map[string]bool{}
	for name, ids := range map[string][]string{
		"none": nil, "empty": {""}, "too long": {strings.Repeat("x", 65)}, "space": {"a b"}, "control": {"a\x1b"},
		"not ASCII": {"é"}, "quote": {`a"b`}, "two": {"a", "b"}, "line": {"a\nb"},
	} {
		inContext, inResponse := send(t, ids...)
		if inContext != inResponse || len(inContext) < 20 || seen[inContext] {
			t.Errorf("%s: the context has %q, the response %q; want a new random ID", name, inContext, inResponse)
		}
		seen[inContext] = true
	}
}
