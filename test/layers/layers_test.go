// Package layers checks that import rules and links name what exists, and that each fact of a profile
// has one reader.
package layers

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const (
	module = "github.com/delegated-ipam/delegated-ipam/"
	// root is the directory of the repository.
	root = "../.."
)

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

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
