package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackageComments checks the packages of this module, generated ones and tests included.
func TestPackageComments(t *testing.T) {
	names, docs := map[string]string{}, map[string]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, noModule := os.Stat(filepath.Join(root, path, "go.mod"))
			if path != "." && (noModule == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		names[dir] = strings.TrimSuffix(file.Name.Name, "_test")
		docs[dir] += file.Doc.Text()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, found := names["client/ipam"]; !found {
		t.Errorf("found %d packages, and client/ipam is not one of them", len(names))
	}
	for dir, name := range names {
		want := "Package " + name + " "
		if name == "main" {
			want = "Command " + filepath.Base(dir) + " "
		}
		if !strings.HasPrefix(docs[dir], want) {
			t.Errorf("the package comment of %s is %.60q; want it to begin with %q", dir, docs[dir], want)
		}
	}
}
