// Package evidence requires a test for each fault of the reliability page and each attack of the security page, and
// writes test/GUARANTEES.md: the tests of each section.
//
// The comment of a test names the page and the first cell of a row, without links, or the section whose
// rows are cases of the test's file:
//
//	//evidence:design/reliability the node is renamed
//	//evidence:design/reliability Storage faults
//	//evidence:operate/security many requests in progress
package evidence

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

var update = flag.Bool("update", false, "rewrite test/GUARANTEES.md")

const (
	output = "test/GUARANTEES.md"
	intro  = `# Which test shows which guarantee

The sections of [reliability.md](../docs/design/reliability.md) and
[security.md](../docs/operate/security.md), and the tests that show what is in them. Those of one
row: ` + "`grep -rn 'evidence:.* TEXT' internal test`" + `. Written by
` + "`go test ./test/evidence -update`" + `.

| section | tests |
|---|---|
`
)

// pages are the pages, in docs.
var pages = []string{"design/reliability", "operate/security"}

var (
	// faults matches the rows of a table of faults; the first group has them.
	faults = regexp.MustCompile(`(?m)^\| (?:fault|verb|attack) \|.*\n\|[-|]+\|\n((?:\|.*\n)+)`)
	// link matches a link; the first group has its text.
	link = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
)

// test is a test with a directive.
type test struct{ dir, name, code string }

func TestGuarantees(t *testing.T) {
	repository := os.DirFS("../..")
	want := intro
	for _, page := range pages {
		text, err := fs.ReadFile(repository, "docs/"+page+".md")
		check.Must(t, err)
		tests, err := directives(repository, "//evidence:"+page+" ")
		check.Must(t, err)
		lines, problems := table(string(text), tests)
		for _, p := range problems {
			t.Errorf("%s: %s", page, p)
		}
		want += lines
	}
	if *update {
		check.Must(t, os.WriteFile("../../"+output, []byte(want), 0o644))
	}
	if got, err := fs.ReadFile(repository, output); err != nil || string(got) != want {
		t.Errorf("%s is not that of the tests (go test ./test/evidence -update rewrites it), %v", output, err)
	}
}

// directives returns the tests that show each fault or section, from lines with a prefix.
func directives(repository fs.FS, prefix string) (map[string][]test, error) {
	tests := map[string][]test{}
	err := fs.WalkDir(repository, ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || file == "test/evidence"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		code, err := fs.ReadFile(repository, file)
		if err != nil {
			return err
		}
		var shown []string
		for line := range strings.Lines(string(code)) {
			if what, ok := strings.CutPrefix(line, prefix); ok {
				shown = append(shown, strings.TrimSpace(what))
			} else if !strings.HasPrefix(line, "//") {
				name, _, isTest := strings.Cut(strings.TrimPrefix(line, "func "), "(t *testing.T)")
				if len(shown) > 0 && (!isTest || !strings.HasPrefix(name, "Test")) {
					return fmt.Errorf("%s: %q is not in the comment of a test", file, shown)
				}
				for _, what := range shown {
					tests[what] = append(tests[what], test{path.Dir(file), name, string(code)})
				}
				shown = nil
			}
		}
		return nil
	})
	return tests, err
}

// table returns a line for each section of a page that has tests, and a problem for each fault without
// a test and for each directive without a section or fault.
func table(text string, tests map[string][]test) (lines string, problems []string) {
	tests = maps.Clone(tests)
	for section := range strings.SplitSeq(text, "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		ofSection, names := tests[title], map[string][]string{}
		add := func(what string) {
			for _, found := range tests[what] {
				if !slices.Contains(names[found.dir], found.name) {
					names[found.dir] = append(names[found.dir], found.name)
				}
			}
			delete(tests, what)
		}
		add(title)
		for _, rows := range faults.FindAllStringSubmatch(section, -1) {
			for row := range strings.Lines(rows[1]) {
				fault := link.ReplaceAllString(strings.TrimSpace(strings.SplitN(row, "|", 3)[1]), "$1")
				isCase := slices.ContainsFunc(ofSection, func(s test) bool { return strings.Contains(s.code, strconv.Quote(fault)) })
				if !isCase && tests[fault] == nil {
					problems = append(problems, fmt.Sprintf("no test shows %q", fault))
				}
				add(fault)
			}
		}
		var cells []string
		for _, dir := range slices.Sorted(maps.Keys(names)) {
			cells = append(cells, fmt.Sprintf("`%s`: %s", dir, strings.Join(names[dir], ", ")))
		}
		if len(cells) > 0 {
			lines += fmt.Sprintf("| %s | %s |\n", title, strings.Join(cells, "; "))
		}
	}
	for what, found := range tests {
		problems = append(problems, fmt.Sprintf("no section or fault %q, which %s names", what, found[0].name))
	}
	return lines, problems
}

func TestTable(t *testing.T) {
	const text = "# Page\n\n## A\n\n| fault | x |\n|---|---|\n| f | 1 |\n| [g](x#y) | 2 |\n\n## B\n\n| attack |\n|---|\n| h |\n| i |\n"
	lines, problems := table(text, map[string][]test{
		"g":    {{"d", "TestG", ""}, {"e", "TestG2", ""}},
		"B":    {{"d", "TestB", `{"h": 1}`}},
		"gone": {{"d", "TestGone", ""}},
	})
	if want := "| A | `d`: TestG; `e`: TestG2 |\n| B | `d`: TestB |\n"; lines != want {
		t.Errorf("got\n%s; want\n%s", lines, want)
	}
	for i, want := range []string{`no test shows "f"`, `no test shows "i"`, `no section or fault "gone"`} {
		if len(problems) != 3 || !strings.Contains(problems[i], want) {
			t.Errorf("problems %q; want %q at %d", problems, want, i)
		}
	}
}
