// Package layers checks the structure of the repository: import rules and the layout table name
// what exists, packages have comments, each fact of a profile has one reader, and the documents
// name what exists.
package layers

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const module = "github.com/delegated-ipam/delegated-ipam/"

// ruleDir is a directory in an import rule of .golangci.yml: of the files that the rule is for, or a
// package that they may not import.
var ruleDir = regexp.MustCompile(`\*\*/([\w/-]+)/\*|pkg: ` + module + `([\w/-]+)`)

// A rule for a directory that was moved forbids nothing.
func TestImportRules(t *testing.T) {
	dirs := ruleDir.FindAllStringSubmatch(read(t, ".golangci.yml"), -1)
	if len(dirs) == 0 {
		t.Fatal("no import rule was found")
	}
	for _, m := range dirs {
		if info, err := os.Stat(filepath.Join(root, m[1]+m[2])); err != nil || !info.IsDir() {
			t.Errorf(".golangci.yml has an import rule for %s, which is not a directory", m[1]+m[2])
		}
	}
}
