package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The table of docs/operate/doctor.md has the checks in the order of their registration.
//
//evidence:operate/doctor the page has every check
func TestDocs(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operate", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Checks\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (?:error|warning)").FindAllStringSubmatch(section, -1) {
		if !slices.Contains(rows, m[1]) {
			rows = append(rows, m[1])
		}
	}
	var names []string
	for _, c := range checks {
		names = append(names, c.Name)
	}
	if !slices.Equal(rows, names) {
		t.Errorf("the table of docs/operate/doctor.md has, in this order,\n%q; the code has\n%q", rows, names)
	}
}
