package contract

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-openapi/spec"
)

const apiPage = documentation + "/docs/api.md"

// beside is on the socket, and no part of the contract (docs/choices.md).
const beside = "GET /metrics"

// What swagger.yaml has, docs/api.md tells: each operation in a section of its
// own, with its parameters, its codes and the keys that its answer begins with.
func TestThePageOfTheAPITellsEachOperationItsParametersCodesAndKeys(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(apiPage)
	if err != nil {
		t.Fatal(err)
	}
	d := loadDocument(t, swaggerFile)
	for name, op := range d.operations {
		for _, missing := range untold(string(text), name, op) {
			t.Errorf("docs/api.md does not tell %s of %s", missing, name)
		}
	}
	for _, heading := range headings(string(text)) {
		method, _, isOperation := strings.Cut(heading, " /")
		isOperation = isOperation && strings.ToUpper(method) == method
		if isOperation && d.operations[heading] == nil && heading != beside {
			t.Errorf("docs/api.md tells of %s, which swagger.yaml does not have", heading)
		}
	}
}

func TestWhatThePageDoesNotTellIsFound(t *testing.T) {
	t.Parallel()
	op := loadDocument(t, swaggerFile).operations["DELETE /ipam/{ip}"]
	const page = "\n## DELETE /ipam/{ip}\n| `ip` |\n| `skip-release-delay` |\n| 200 |\n| 400 | 403 | 404 | 500 | 501 |\n## GET /ipam\n`pool`\n"
	if got, want := untold(page, "DELETE /ipam/{ip}", op), []string{"the parameter pool"}; !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
	if got := untold(page, "GET /healthz", op); !slices.Equal(got, []string{"anything"}) {
		t.Errorf("got %q for an operation without a section", got)
	}
}

// untold is what the section of an operation does not name.
func untold(page, name string, op *spec.Operation) []string {
	_, section, found := strings.Cut(page, "\n## "+name+"\n")
	if !found {
		return []string{"anything"}
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var missing []string
	for _, p := range op.Parameters {
		if !strings.Contains(section, "`"+p.Name+"`") {
			missing = append(missing, "the parameter "+p.Name)
		}
	}
	for code, response := range op.Responses.StatusCodeResponses {
		// One that is always the same is told in words.
		if len(op.Responses.StatusCodeResponses) > 1 && !strings.Contains(section, fmt.Sprintf("| %d |", code)) {
			missing = append(missing, fmt.Sprint("the code ", code))
		}
		missing = append(missing, untoldKeys(section, response.Schema)...)
	}
	slices.Sort(missing)
	return missing
}

// untoldKeys are the keys of an answer, or of the elements of a list, that a
// section names neither in words nor in an example.
func untoldKeys(section string, s *spec.Schema) []string {
	if s == nil {
		return nil
	}
	if s.Items != nil {
		return untoldKeys(section, s.Items.Schema)
	}
	var missing []string
	for key, property := range s.Properties {
		if !strings.Contains(section, "`"+key+"`") && !strings.Contains(section, `"`+key+`"`) {
			missing = append(missing, "the key "+key)
		}
		if property.Extensions[extension] == true {
			missing = append(missing, untoldKeys(section, &property)...)
		}
	}
	return missing
}

// headings are those of the second level.
func headings(page string) []string {
	var all []string
	for line := range strings.Lines(page) {
		if heading, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			all = append(all, heading)
		}
	}
	return all
}
