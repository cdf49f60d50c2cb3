package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
)

// codes are the status codes of an error of the engine, by operation.
type codes struct{ allocate, restore, release, discard int }

func codesByKind() map[protocol.Kind]codes {
	return map[protocol.Kind]codes{
		protocol.Forbidden:      {403, 403, 403, 403},
		protocol.FamilyDisabled: {502, 501, 501, 500},
		protocol.UnknownPool:    {502, 500, 404, 404},
		protocol.NotFound:       {502, 500, 404, 404},
		protocol.Exists:         {502, 409, 500, 500},
		protocol.Failed:         {502, 500, 500, 500},
		protocol.Busy:           {502, 500, 500, 500},
		protocol.Stopping:       {502, 500, 500, 500},
	}
}

type request struct{ name, method, target string }

func requests() []request {
	return []request{
		{"allocate", http.MethodPost, "/v1/ipam?owner=health"},
		{"restore", http.MethodPost, "/v1/ipam/10.1.2.3?owner=health"},
		{"release", http.MethodDelete, "/v1/ipam/10.1.2.3"},
		{"discard", http.MethodDelete, "/v1/ipam?owner=health"},
	}
}

func (c codes) of(operation string) int {
	return map[string]int{"allocate": c.allocate, "restore": c.restore, "release": c.release, "discard": c.discard}[operation]
}

func TestErrorCodes(t *testing.T) {
	shared := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	for kind, want := range codesByKind() {
		for _, r := range requests() {
			t.Run(r.name+" "+string(kind), func(t *testing.T) {
				f := shared.reset()
				f.engine.err = fmt.Errorf("wrapped: %w", &protocol.Error{Kind: kind, Err: errors.New("why")})
				got := f.send(t, r.method, r.target)
				wantCode(t, got, want.of(r.name))
				if body := payload(t, got); body != "wrapped: why" {
					t.Errorf("got %q; want the error of the engine", body)
				}
				if value, ok := got.header["Retry-After"]; ok {
					t.Errorf("got Retry-After %q; want none", value)
				}
			})
		}
	}
}

func TestInvalidAddressReason(t *testing.T) {
	f := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		got := f.send(t, method, "/v1/ipam/10.0.0.1%25eth0%0d%0aX:%20%C3%A9")
		wantCode(t, got, http.StatusBadRequest)
		if reason, want := payload(t, got), "10.0.0.1%eth0"; !strings.Contains(reason, want) {
			t.Errorf("%s: the reason is %q; want it to name %q", method, reason, want)
		}
	}
}

func TestErrorKinds(t *testing.T) {
	want := codesByKind()
	kinds := kindsInSource(t)
	if len(kinds) == 0 {
		t.Fatal("no constant of type Kind found in package protocol")
	}
	for _, kind := range kinds {
		if _, ok := want[kind]; !ok {
			t.Errorf("kind %q of package protocol is not in this test", kind)
		}
	}
}

// kindsInSource returns the constants of type Kind in the source of package protocol, so that
// a new one cannot be missed.
func kindsInSource(t *testing.T) []protocol.Kind {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../engine/protocol/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []protocol.Kind
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Kind" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, protocol.Kind(text))
		}
		return false
	})
	return kinds
}

func TestUnknownErrors(t *testing.T) {
	shared := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	for _, err := range []error{
		errors.New("disk on fire"),
		&protocol.Error{Kind: "unheard of", Err: errors.New("disk on fire")},
	} {
		for _, r := range requests() {
			f := shared.reset()
			f.engine.err = err
			got := f.send(t, r.method, r.target)
			wantCode(t, got, codesByKind()[protocol.Failed].of(r.name))
			if body := payload(t, got); body != "disk on fire" {
				t.Errorf("got %q; want the text of the error", body)
			}
		}
	}
}

func TestRetryAfter(t *testing.T) {
	shared := newFixture(t, dualStack, &models.DelegatedIPAMStatus{})
	for wait, want := range map[time.Duration]string{
		time.Millisecond: "1", time.Second: "1", 1500 * time.Millisecond: "2", time.Minute: "60",
	} {
		for _, r := range requests() {
			f := shared.reset()
			f.engine.err = &protocol.Error{Kind: protocol.Busy, RetryAfter: wait, Err: errors.New("queue is full")}
			got := f.send(t, r.method, r.target)
			if values := got.header["Retry-After"]; !slices.Equal(values, []string{want}) {
				t.Errorf("%s, %s: Retry-After is %q; want %q", r.name, wait, values, want)
			}
		}
	}
}

// payload decodes the JSON string of an Error (swagger.yaml, definition Error).
func payload(t *testing.T, got received) string {
	t.Helper()
	var text string
	if err := json.Unmarshal([]byte(got.body), &text); err != nil {
		t.Fatalf("the body %q is not a JSON string: %v", got.body, err)
	}
	return text
}
