package layers

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// adrTitle is the first line of a decision: its number and title.
	adrTitle = regexp.MustCompile(`^# (\d{4}): (.+)\n`)
	// adrStatus is the second paragraph of a decision.
	adrStatus = regexp.MustCompile(`(?m)^Status: (Accepted|Superseded by \d{4})$`)
)

// Each decision has the four sections, the number of its file and a row in the index, and the
// numbers have no gap.
func TestDecisions(t *testing.T) {
	dir := filepath.Join("docs", "design", "adr")
	pages := files(t, dir, ".md")
	index := pages[filepath.Join(dir, "README.md")]
	delete(pages, filepath.Join(dir, "README.md"))
	for i, path := range slices.Sorted(maps.Keys(pages)) {
		page, name := pages[path], filepath.Base(path)
		title := adrTitle.FindStringSubmatch(page)
		if title == nil || title[1] != fmt.Sprintf("%04d", i+1) || !strings.HasPrefix(name, title[1]+"-") {
			t.Errorf("%s begins with %q; want its number %04d and a title, and the number in its name", path, firstLine(page), i+1)
			continue
		}
		var sections []string
		for _, m := range headingInDocs.FindAllStringSubmatch(page, -1)[1:] {
			sections = append(sections, m[1])
		}
		if want := []string{"Context", "Decision", "Consequences"}; !slices.Equal(sections, want) || !adrStatus.MatchString(page) {
			t.Errorf("%s has the sections %q; want a status and %q", path, sections, want)
		}
		if row := fmt.Sprintf("\n| [%s](%s) | %s | ", title[1], name, title[2]); !strings.Contains(index, row) {
			t.Errorf("the index of the decisions has no row that begins with %q", row)
		}
	}
	if rows := strings.Count(index, "\n| ["); len(pages) == 0 || rows != len(pages) {
		t.Errorf("there are %d decisions and %d rows in their index; want one row for each", len(pages), rows)
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
