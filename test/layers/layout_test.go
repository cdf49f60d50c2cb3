package layers

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layoutPage is the page with the table of directories, in its section Layout.
const layoutPage = "docs/design/development.md"

// layoutRow is a row of that table: a directory and what it contains.
var layoutRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\|$")

// whole are the directories with one row for everything below them.
var whole = []string{"api/models", "server", "client", "deploy", "docs", "tools"}

func TestLayout(t *testing.T) {
	_, section, _ := strings.Cut(read(t, layoutPage), "\n## Layout\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]bool{}
	for _, row := range layoutRow.FindAllStringSubmatch(section, -1) {
		if directory := strings.TrimSuffix(row[1], "/"); rows[directory] {
			t.Errorf("%s has two rows in %s", directory, layoutPage)
		} else {
			rows[directory] = true
		}
	}
	directories := packageDirs(t)
	for _, directory := range whole {
		directories[directory] = true
	}
	for _, directory := range slices.Sorted(maps.Keys(directories)) {
		if !rows[directory] {
			t.Errorf("%s has no row in %s, Layout", directory, layoutPage)
		}
		delete(rows, directory)
	}
	for directory := range rows {
		t.Errorf("%s has a row in %s but is not a package", directory, layoutPage)
	}
}

// topLevel are the tracked directories and files at the top level.
var topLevel = []string{
	".ci", ".editorconfig", ".github", ".gitignore", ".golangci.yml",
	"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md",
	"api", "client", "cmd", "deploy", "docs", "go.mod", "go.sum", "internal", "pkg", "server", "swagger.yaml", "test", "tools",
}

func TestTopLevel(t *testing.T) {
	cmd := exec.Command("git", "ls-tree", "--name-only", "HEAD")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if found := strings.Fields(string(out)); !slices.Equal(found, topLevel) {
		t.Errorf("the top level has %q; want %q", found, topLevel)
	}
}

// packageDirs returns the directories of cmd, pkg and test that contain Go files, except testdata.
func packageDirs(t *testing.T) map[string]bool {
	t.Helper()
	directories := map[string]bool{}
	for _, top := range []string{"cmd", "internal", "pkg", "test"} {
		err := fs.WalkDir(os.DirFS(root), top, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && d.Name() == "testdata" {
				return fs.SkipDir
			}
			if !d.IsDir() && strings.HasSuffix(path, ".go") {
				directories[filepath.Dir(path)] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return directories
}
