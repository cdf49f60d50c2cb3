// Package layers checks the structure of the repository: its packages have import rules and
// comments, each fact of a profile has one reader, and the documents name what exists.
package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const module = "github.com/delegated-ipam/delegated-ipam/"

// ruleFiles is the directory to which an import rule of .golangci.yml applies.
var ruleFiles = regexp.MustCompile(`files: \["\*\*/([^"*]+)/\*\.go", "!\$test"\]`)

// depguard checks the imports of the packages that have a rule; a new package has none.
func TestImportRules(t *testing.T) {
	rules := map[string]bool{}
	for _, m := range ruleFiles.FindAllStringSubmatch(read(t, ".golangci.yml"), -1) {
		rules[m[1]] = true
	}
	found := map[string]bool{}
	for _, top := range []string{"cmd", "internal", "pkg"} {
		err := fs.WalkDir(os.DirFS(root), top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				found[filepath.Dir(path)] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for dir := range found {
		if !rules[dir] {
			t.Errorf("%s has no import rule in .golangci.yml; add one with the packages that it may import", dir)
		}
	}
	for dir := range rules {
		if !found[dir] {
			t.Errorf(".golangci.yml has an import rule for %s, which has no Go file", dir)
		}
	}
}
