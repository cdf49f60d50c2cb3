package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	// testInDocs is a test that a page names, such as `TestX` or `TestX/a_case`.
	testInDocs = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]*)(?:/[^`]*)?`")
	// testInCode is the declaration of a test.
	testInCode = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9_]*)\(`)
	// casesInDocs are cases of the engine's tests that a page names: engine: "one", "another".
	casesInDocs = regexp.MustCompile(`engine: ("[^"]+"(?:, "[^"]+")*)`)
	quoted      = regexp.MustCompile(`"[^"]+"`)
	// trapInDocs is a row of the table of traps: its number and the rest.
	trapInDocs = regexp.MustCompile(`(?m)^\| (\d+) \| (.*) \|$`)
)

func TestDocsTestNames(t *testing.T) {
	declared := map[string]bool{}
	for _, code := range files(t, ".", "_test.go") {
		for _, m := range testInCode.FindAllStringSubmatch(code, -1) {
			declared[m[1]] = true
		}
	}
	named := 0
	for page, text := range files(t, "docs", ".md") {
		for _, m := range testInDocs.FindAllStringSubmatch(text, -1) {
			named++
			if !declared[m[1]] {
				t.Errorf("%s names %s, which is not a test of this repository", page, m[1])
			}
		}
	}
	if named == 0 || len(declared) == 0 {
		t.Errorf("found %d names in the docs and %d tests; want both, or nothing is compared", named, len(declared))
	}
}

func TestDocsEngineCases(t *testing.T) {
	var tests strings.Builder
	for _, code := range files(t, filepath.Join("pkg", "attachment"), "_test.go") {
		tests.WriteString(code)
	}
	count := 0
	for page, text := range files(t, "docs", ".md") {
		for _, m := range casesInDocs.FindAllStringSubmatch(text, -1) {
			for _, name := range quoted.FindAllString(m[1], -1) {
				count++
				if !strings.Contains(tests.String(), name) {
					t.Errorf("%s names %s, which is not in a test of pkg/attachment", page, name)
				}
			}
		}
	}
	if count == 0 {
		t.Error("the docs name no case of the engine; nothing is compared")
	}
}

// A change of a test must not lose its trap, so the test's comment names it.
func TestDocsTraps(t *testing.T) {
	comments := commentsOfTests(t)
	_, section, _ := strings.Cut(files(t, "docs", ".md")[filepath.Join("docs", "reference", "plugin-behaviour.md")], "\n## Traps and their tests\n")
	table, _, _ := strings.Cut(section, "\n## ")
	rows := trapInDocs.FindAllStringSubmatch(table, -1)
	if lines := strings.Count(table, "\n|") - 2; len(rows) == 0 || len(rows) != lines {
		t.Errorf("%d of the %d rows below the head begin with a number; want all of them", len(rows), lines)
	}
	for i, row := range rows {
		if row[1] != strconv.Itoa(i+1) {
			t.Errorf("row %d of the table has the number %s", i+1, row[1])
		}
		tests := testInDocs.FindAllStringSubmatch(row[2], -1)
		if len(tests) == 0 && !casesInDocs.MatchString(row[2]) {
			t.Errorf("trap %s names no test and no case of the engine: %s", row[1], row[2])
		}
		for _, m := range tests {
			if comment, ok := comments[m[1]]; !ok || !strings.Contains(comment, "Trap") {
				t.Errorf("trap %s names %s, which does not say in its comment (%q) which trap it is of: want \"Trap: …\"", row[1], m[1], comment)
			}
		}
	}
}

// commentsOfTests returns the comment of each test of the repository by name.
func commentsOfTests(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	for path, code := range files(t, ".", "_test.go") {
		f, err := parser.ParseFile(token.NewFileSet(), path, code, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if function, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(function.Name.Name, "Test") {
				comments[function.Name.Name] = function.Doc.Text()
			}
		}
	}
	return comments
}

// files returns the text of every file below a directory of the repository whose name has the ending,
// by path. Hidden directories are left out.
func files(t *testing.T, dir, ending string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := fs.WalkDir(os.DirFS(root), dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ending) {
			return nil
		}
		data, err := os.ReadFile(filepath.Join(root, path))
		texts[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
