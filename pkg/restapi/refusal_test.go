package restapi_test

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
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

// codes are the status codes that an engine's failure gets, by operation.
type codes struct{ allocate, restore, release int }

func wantedCodes() map[attachment.Kind]codes {
	return map[attachment.Kind]codes{
		attachment.Forbidden:      {403, 403, 403},
		attachment.FamilyDisabled: {502, 501, 501},
		attachment.UnknownPool:    {502, 500, 404},
		attachment.NotFound:       {502, 500, 404},
		attachment.Exists:         {502, 409, 500},
		attachment.Failed:         {502, 500, 500},
		attachment.Busy:           {502, 500, 500},
		attachment.Stopping:       {502, 500, 500},
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

func TestEachFailureOfTheEngineGetsTheStatusCodeOfCiliumsContract(t *testing.T) {
	shared := newFixture(t, dualStack, restapi.Report{})
	for kind, want := range wantedCodes() {
		for _, r := range requests() {
			t.Run(fmt.Sprintf("%s that fails as %s", r.name, kind), func(t *testing.T) {
				f := shared.fresh()
				f.engine.err = fmt.Errorf("wrapped: %w", &attachment.Error{Kind: kind, Err: errors.New("why")})
				got := f.ask(t, r.method, r.target)
				wantCode(t, got, want.of(r.name))
				if got.code < 500 || got.code == http.StatusNotImplemented {
					return // the contract check has seen that there is no body
				}
				if body := payload(t, got); body != "wrapped: why" {
					t.Errorf("answered %q; expected the engine's reason", body)
				}
				if value, ok := got.header["Retry-After"]; ok {
					t.Errorf("answered Retry-After %q without a reason for it", value)
				}
			})
		}
	}
}

func TestEveryKindOfTheEngineIsInTheTable(t *testing.T) {
	want := wantedCodes()
	kinds := kindsInSource(t)
	if len(kinds) == 0 {
		t.Fatal("no constant of type Kind found in package attachment")
	}
	for _, kind := range kinds {
		if _, ok := want[kind]; !ok {
			t.Errorf("kind %q of package attachment has no status code here", kind)
		}
		for _, op := range restapi.Operations {
			if !restapi.Answers(op, kind) {
				t.Errorf("%s has no entry for kind %q", op, kind)
			}
		}
	}
}

// kindsInSource reads the constants of type Kind from package attachment, so
// that one added there cannot be forgotten here.
func kindsInSource(t *testing.T) []attachment.Kind {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../attachment/api.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []attachment.Kind
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
			kinds = append(kinds, attachment.Kind(text))
		}
		return false
	})
	return kinds
}

func TestAnErrorOfNoKnownKindIsAPlainFailureWithItsReason(t *testing.T) {
	shared := newFixture(t, dualStack, restapi.Report{})
	for _, err := range []error{
		errors.New("disk on fire"),
		&attachment.Error{Kind: "unheard of", Err: errors.New("disk on fire")},
	} {
		for _, r := range requests() {
			f := shared.fresh()
			f.engine.err = err
			got := f.ask(t, r.method, r.target)
			wantCode(t, got, wantedCodes()[attachment.Failed].of(r.name))
			if body := payload(t, got); body != "disk on fire" {
				t.Errorf("answered %q; expected the error's text", body)
			}
		}
	}
}

func TestABusyEngineSaysInWholeSecondsWhenToAskAgain(t *testing.T) {
	shared := newFixture(t, dualStack, restapi.Report{})
	for wait, want := range map[time.Duration]string{
		time.Millisecond: "1", time.Second: "1", 1500 * time.Millisecond: "2", time.Minute: "60",
	} {
		for _, r := range requests() {
			f := shared.fresh()
			f.engine.err = &attachment.Error{Kind: attachment.Busy, RetryAfter: wait, Err: errors.New("queue is full")}
			got := f.ask(t, r.method, r.target)
			if values := got.header["Retry-After"]; !slices.Equal(values, []string{want}) {
				t.Errorf("%s after %s: Retry-After is %q; expected %q", r.name, wait, values, want)
			}
		}
	}
}

func TestTheReasonOfAnAnswerWithoutBodyIsInTheLog(t *testing.T) {
	f := newFixture(t, dualStack, restapi.Report{})
	f.engine.err = &attachment.Error{Kind: attachment.Forbidden, Err: errors.New("--owners does not admit it")}
	wantCode(t, f.ask(t, http.MethodPost, "/v1/ipam?owner=other&owner=health&pool=blue&family=ipv4"), http.StatusForbidden)
	line := f.outcome(t)
	for key, want := range map[string]any{
		"owner": "health", "poolName": "blue", "family": "ipv4", "code": 403,
		"error": "--owners does not admit it", "kind": "forbidden",
	} {
		if line.Data[key] != want {
			t.Errorf("log field %s is %v; expected %v", key, line.Data[key], want)
		}
	}
}

// payload is the JSON string of an Error (swagger.yaml, definition Error).
func payload(t *testing.T, a answer) string {
	t.Helper()
	var text string
	if err := json.Unmarshal([]byte(a.body), &text); err != nil {
		t.Fatalf("the body %q is no JSON string: %v", a.body, err)
	}
	return text
}
