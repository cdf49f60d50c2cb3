package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// codes are the status codes of an error of the engine, by operation.
type codes struct{ allocate, restore, release int }

func codesByKind() map[attachment.Kind]codes {
	return map[attachment.Kind]codes{
		attachment.Forbidden:      {403, 403, 403},
		attachment.FamilyDisabled: {502, 501, 501},
		attachment.UnknownPool:    {502, 500, 404},
		attachment.NotFound:       {502, 500, 404},
		attachment.Exists:         {502, 409, 500},
		attachment.Failed:         {502, 500, 500},
		attachment.Busy:           {502, 500, 500},
		attachment.Stopping:       {502, 500, 500},
		"unheard of":              {502, 500, 500},
	}
}

type request struct{ name, method, target string }

func requests() []request {
	return []request{
		{"allocate", http.MethodPost, "/v1/ipam?owner=health"},
		{"restore", http.MethodPost, "/v1/ipam/10.1.2.3?owner=health"},
		{"release", http.MethodDelete, "/v1/ipam/10.1.2.3"},
	}
}

func (c codes) of(operation string) int {
	return map[string]int{"allocate": c.allocate, "restore": c.restore, "release": c.release}[operation]
}

func TestErrorCodes(t *testing.T) {
	type result struct {
		err  error
		want codes
	}
	results := map[string]result{"error of another type": {errors.New("why"), codesByKind()[attachment.Failed]}}
	for kind, want := range codesByKind() {
		results[string(kind)] = result{fmt.Errorf("wrapped: %w", &attachment.Error{Kind: kind, Err: errors.New("why")}), want}
	}
	shared := newDual(t)
	for name, c := range results {
		for _, r := range requests() {
			t.Run(r.name+" "+name, func(t *testing.T) {
				f := shared.reset()
				f.engine.err = c.err
				got := f.send(t, r.method, r.target)
				wantCode(t, got, c.want.of(r.name))
				check.Equal(t, "body", payload(t, got), c.err.Error())
				check.Equal(t, "Retry-After", got.header.Get("Retry-After"), "")
			})
		}
	}
}

func TestErrorKinds(t *testing.T) {
	want := codesByKind()
	kinds := kindsInSource(t)
	if len(kinds) == 0 {
		t.Fatal("no constant of type Kind found in package attachment")
	}
	for _, kind := range kinds {
		_, ok := want[kind]
		check.True(t, ok, "kind %q of package attachment is not in this test", kind)
	}
}

// kindsInSource returns each constant of type Kind in package attachment, so that no new one is missed.
func kindsInSource(t *testing.T) []attachment.Kind {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../attachment/errors.go", nil, 0)
	check.Must(t, err)
	var kinds []attachment.Kind
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Kind" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			check.Must(t, err)
			kinds = append(kinds, attachment.Kind(text))
		}
		return false
	})
	return kinds
}

func TestRetryAfter(t *testing.T) {
	shared := newDual(t)
	for wait, want := range map[time.Duration]string{
		time.Millisecond: "1", time.Second: "1", 1500 * time.Millisecond: "2", time.Minute: "60",
	} {
		for _, r := range requests() {
			f := shared.reset()
			f.engine.err = &attachment.Error{Kind: attachment.Busy, RetryAfter: wait, Err: errors.New("queue is full")}
			got := f.send(t, r.method, r.target)
			check.Equal(t, "Retry-After after "+wait.String(), got.header["Retry-After"], []string{want})
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
