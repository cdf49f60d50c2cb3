package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
