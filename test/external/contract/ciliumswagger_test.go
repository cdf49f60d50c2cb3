package contract

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-openapi/spec"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// extension marks operations, definitions and properties that Cilium's API lacks.
const extension = "x-delegated-ipam-extension"

// addition marks rules and bodies that we add to Cilium's operations.
const addition = "x-delegated-ipam"

// The parts of swagger.yaml without the mark must be the same in Cilium's document: paths,
// parameters, codes, Go names of the codes, JSON keys and their types.
func TestCiliumSubset(t *testing.T) {
	t.Parallel()
	ours, theirs := loadSwagger(t, swaggerFile), loadSwagger(t, ciliumSwagger(t))
	if ours.basePath != theirs.basePath {
		t.Errorf("our base path is %s, Cilium's %s", ours.basePath, theirs.basePath)
	}
	compared := 0
	for name, op := range ours.operations {
		if op.Extensions[extension] == true {
			continue
		}
		compared++
		t.Run(name, func(t *testing.T) {
			want, ok := theirs.operations[name]
			if !ok {
				t.Fatal("Cilium lacks this operation, and it is not marked as an extension")
			}
			compareOperations(t, op, want)
		})
	}
	if compared == 0 {
		t.Error("no operation was compared")
	}
}

func compareOperations(t *testing.T, our, their *spec.Operation) {
	t.Helper()
	if !slices.Equal(our.Tags, their.Tags) {
		t.Errorf("the tags are %q; Cilium's are %q", our.Tags, their.Tags)
	}
	if got, want := parameters(our), parameters(their); !slices.Equal(got, want) {
		t.Errorf("the parameters are %q; Cilium's are %q", got, want)
	}
	if got, want := responses(our), responses(their); !slices.Equal(got, want) {
		t.Errorf("the codes are %q; Cilium's are %q", got, want)
	}
	if other := our.Responses.Default; other == nil || other.Extensions[addition] == nil || their.Responses.Default != nil {
		t.Errorf("the default responses are %v and Cilium's %v; want ours only, marked as an addition", other, their.Responses.Default)
	}
	for code, response := range our.Responses.StatusCodeResponses {
		theirs := their.Responses.StatusCodeResponses[code]
		if _, added := response.Extensions[addition]; added && theirs.Schema == nil {
			continue
		}
		if (response.Schema == nil) != (theirs.Schema == nil) {
			t.Errorf("only one of both has a body with %d", code)
		} else if response.Schema != nil {
			compareSchemas(t, fmt.Sprint(code), response.Schema, theirs.Schema)
		}
	}
}

// compareSchemas fails the test for each of our keys that Cilium lacks, or has with another type.
func compareSchemas(t *testing.T, where string, our, their *spec.Schema) {
	t.Helper()
	if got, want := typeOf(our), typeOf(their); got != want {
		t.Errorf("%s is of type %q; Cilium's is %q", where, got, want)
	}
	if !slices.Equal(our.Required, their.Required) {
		t.Errorf("%s requires %q; Cilium's %q", where, our.Required, their.Required)
	}
	for name, property := range our.Properties {
		if property.Extensions[extension] == true {
			continue
		}
		theirs, ok := their.Properties[name]
		if !ok {
			t.Errorf("Cilium lacks the key %s.%s, and it is not marked as an extension", where, name)
			continue
		}
		compareSchemas(t, where+"."+name, &property, &theirs)
	}
	if our.Items != nil && their.Items != nil {
		compareSchemas(t, where+"[]", our.Items.Schema, their.Items.Schema)
	}
}

// typeOf returns the type of a schema; one with properties is an object, also if it has no type.
func typeOf(s *spec.Schema) string {
	if len(s.Type) == 0 && len(s.Properties) > 0 {
		return "object"
	}
	return strings.Join(s.Type, ",")
}

func parameters(op *spec.Operation) []string {
	var all []string
	for _, p := range op.Parameters {
		if p.Extensions[extension] == true {
			continue
		}
		all = append(all, fmt.Sprintf("%s %s %s %v required=%t", p.In, p.Name, p.Type, p.Enum, p.Required))
	}
	return slices.Sorted(slices.Values(all))
}

func responses(op *spec.Operation) []string {
	var all []string
	for code, r := range op.Responses.StatusCodeResponses {
		all = append(all, fmt.Sprint(code, " ", r.Extensions["x-go-name"]))
	}
	return slices.Sorted(slices.Values(all))
}

// ciliumSwagger returns the path of Cilium's document in the pinned module.
func ciliumSwagger(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/cilium").Output()
	check.Must(t, err)
	return filepath.Join(strings.TrimSpace(string(out)), "api", "v1", "openapi.yaml")
}
