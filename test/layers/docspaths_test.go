package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// pageInText is the path of a page, as code, manifests and help texts name it.
var pageInText = regexp.MustCompile(`\bdocs/[\w/-]+\.md\b`)

// Every page that a file of the repository names exists, also outside links.
func TestDocsPaths(t *testing.T) {
	named := 0
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == ".git" || name == ".cache" || name == "bin" || name == "run" {
				return fs.SkipDir
			}
			return nil
		}
		data, err := os.ReadFile(filepath.Join(root, path))
		for _, page := range pageInText.FindAllString(string(data), -1) {
			named++
			if _, err := os.Stat(filepath.Join(root, page)); err != nil {
				t.Errorf("%s names %s, which does not exist", path, page)
			}
		}
		return err
	})
	if err != nil || named == 0 {
		t.Errorf("%d pages are named: %v; want some, or nothing is checked", named, err)
	}
}
