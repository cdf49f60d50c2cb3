package layers

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layoutRow is a row of the table in README.md, Layout: a folder and what it contains.
var layoutRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\|$")

// whole are the folders with one row for everything below them.
var whole = []string{"api/models", "server", "client", "deploy", "docs", "tools"}

func TestLayout(t *testing.T) {
	_, section, _ := strings.Cut(files(t, ".", "README.md")["README.md"], "\n## Layout\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]bool{}
	for _, row := range layoutRow.FindAllStringSubmatch(section, -1) {
		if folder := strings.TrimSuffix(row[1], "/"); rows[folder] {
			t.Errorf("%s has two rows", folder)
		} else {
			rows[folder] = true
		}
	}
	folders := packageFolders(t)
	for _, folder := range whole {
		folders[folder] = true
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if !rows[folder] {
			t.Errorf("%s has no row", folder)
		}
		delete(rows, folder)
	}
	for folder := range rows {
		t.Errorf("%s has a row but is not a package", folder)
	}
}

// packageFolders returns the folders of cmd, pkg and test that contain Go files.
func packageFolders(t *testing.T) map[string]bool {
	t.Helper()
	folders := map[string]bool{}
	for _, top := range []string{"cmd", "pkg", "test"} {
		err := fs.WalkDir(os.DirFS(root), top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".go") {
				folders[filepath.Dir(path)] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return folders
}
