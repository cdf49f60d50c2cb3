package layers

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layouts are the pages with a table of directories: where the table begins, the directory to which
// its rows are relative, and the directories each of whose folders has a row.
var layouts = []struct {
	page, begin, base string
	of                []string
}{
	{"docs/design/development.md", "\n## Layout\n", "", []string{"cmd", "internal", "internal/bridge", "internal/fleet", "internal/plugin", "internal/sidecar", "pkg"}},
	{"test/README.md", "", "test", []string{"test"}},
}

// layoutRow is a row of such a table.
var layoutRow = regexp.MustCompile("(?m)^\\| ((?:`[^`]+`(?:, )?)+) \\| .+ \\|$")

func TestLayout(t *testing.T) {
	for _, l := range layouts {
		_, table, _ := strings.Cut(read(t, l.page), l.begin)
		table, _, _ = strings.Cut(table, "\n## ")
		rows := map[string]bool{}
		for _, row := range layoutRow.FindAllStringSubmatch(table, -1) {
			for _, dir := range strings.Split(row[1], ", ") {
				dir = filepath.Join(l.base, strings.Trim(dir, "`"))
				if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
					t.Errorf("%s has a row for %s, which does not exist", l.page, dir)
				}
				rows[dir] = true
			}
		}
		for _, parent := range l.of {
			entries, err := os.ReadDir(filepath.Join(root, parent))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				dir := filepath.Join(parent, e.Name())
				if e.IsDir() && !rows[dir] && e.Name() != "internal" && e.Name() != "testdata" {
					t.Errorf("%s has no row in %s", dir, l.page)
				}
			}
		}
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
