package contract

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-openapi/spec"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const apiPage = documentation + "/docs/reference/api.md"

// metricsOperation is served on the socket and is not part of swagger.yaml (docs/design/adr/0018-readiness-and-metrics.md).
const metricsOperation = "GET /metrics"

// docs/reference/api.md must have a section for each operation of swagger.yaml, with its parameters, its
// codes and the keys of its response.
func TestAPIDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(apiPage)
	harness.Must(t, err)
	d := loadSwagger(t, swaggerFile)
	for name, op := range d.operations {
		for _, missing := range undocumented(string(text), name, op) {
			t.Errorf("docs/reference/api.md lacks %s of %s", missing, name)
		}
	}
	for _, heading := range headings(string(text)) {
		method, _, isOperation := strings.Cut(heading, " /")
		isOperation = isOperation && strings.ToUpper(method) == method
		if isOperation && d.operations[heading] == nil && heading != metricsOperation {
			t.Errorf("docs/reference/api.md has %s, which is not in swagger.yaml", heading)
		}
	}
}

func TestUndocumented(t *testing.T) {
	t.Parallel()
	op := loadSwagger(t, swaggerFile).operations["DELETE /ipam/{ip}"]
	const page = "\n## DELETE /ipam/{ip}\n| `ip` |\n| `skip-release-delay` |\n| 200 |\n| 400 | 403 | 404 | 500 | 501 |\n## GET /ipam\n`pool`\n"
	if got, want := undocumented(page, "DELETE /ipam/{ip}", op), []string{"parameter pool"}; !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
	if got := undocumented(page, "GET /healthz", op); !slices.Equal(got, []string{"section"}) {
		t.Errorf("operation without a section: got %q", got)
	}
}

// undocumented returns the parameters, codes and keys that the section of an operation lacks.
func undocumented(page, name string, op *spec.Operation) []string {
	_, section, found := strings.Cut(page, "\n## "+name+"\n")
	if !found {
		return []string{"section"}
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var missing []string
	for _, p := range op.Parameters {
		if !strings.Contains(section, "`"+p.Name+"`") {
			missing = append(missing, "parameter "+p.Name)
		}
	}
	for code, response := range op.Responses.StatusCodeResponses {
		// A single code needs no table.
		if len(op.Responses.StatusCodeResponses) > 1 && !strings.Contains(section, fmt.Sprintf("| %d |", code)) {
			missing = append(missing, fmt.Sprint("code ", code))
		}
		missing = append(missing, undocumentedKeys(section, response.Schema)...)
	}
	slices.Sort(missing)
	return missing
}

// undocumentedKeys returns the keys of a response, or of the elements of a list, that a section has
// neither in its text nor in an example.
func undocumentedKeys(section string, s *spec.Schema) []string {
	if s == nil {
		return nil
	}
	if s.Items != nil {
		return undocumentedKeys(section, s.Items.Schema)
	}
	var missing []string
	for key, property := range s.Properties {
		if !strings.Contains(section, "`"+key+"`") && !strings.Contains(section, `"`+key+`"`) {
			missing = append(missing, "key "+key)
		}
		if property.Extensions[extension] == true {
			missing = append(missing, undocumentedKeys(section, &property)...)
		}
	}
	return missing
}

// headings returns the headings of the second level.
func headings(page string) []string {
	var all []string
	for line := range strings.Lines(page) {
		if heading, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			all = append(all, heading)
		}
	}
	return all
}
