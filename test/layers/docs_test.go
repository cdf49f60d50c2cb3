package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// testInDocs is a test that a page names, such as `TestX` or `TestX/a_case`.
	testInDocs = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]*)(?:/[^`]*)?`")
	// testInCode is where a test is declared.
	testInCode = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9_]*)\(`)
	// sentencesInDocs are the sentences of the engine's tests that a page quotes:
	// engine: "one", "another".
	sentencesInDocs = regexp.MustCompile(`engine: ("[^"]+"(?:, "[^"]+")*)`)
	quoted          = regexp.MustCompile(`"[^"]+"`)
)

func TestEveryTestThatTheDocsNameIsThere(t *testing.T) {
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
				t.Errorf("%s names %s, which is no test of this repository", page, m[1])
			}
		}
	}
	if named == 0 || len(declared) == 0 {
		t.Errorf("found %d names in the docs and %d tests; want both, or nothing is compared", named, len(declared))
	}
}

func TestEverySentenceOfTheEngineThatTheDocsQuoteIsPlayed(t *testing.T) {
	var played strings.Builder
	for _, code := range files(t, filepath.Join("pkg", "attachment"), "_test.go") {
		played.WriteString(code)
	}
	count := 0
	for page, text := range files(t, "docs", ".md") {
		for _, m := range sentencesInDocs.FindAllStringSubmatch(text, -1) {
			for _, sentence := range quoted.FindAllString(m[1], -1) {
				count++
				if !strings.Contains(played.String(), sentence) {
					t.Errorf("%s quotes %s, which is in no test of pkg/attachment", page, sentence)
				}
			}
		}
	}
	if count == 0 {
		t.Error("the docs quote no sentence; nothing is compared")
	}
}

// files returns the text of every file below a folder of the repository whose
// name ends so, by path. Folders whose names begin with a dot are left out.
func files(t *testing.T, dir, ending string) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
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
