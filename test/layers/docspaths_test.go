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

var (
	// sectionInText is a page and the heading of a section, as comments and messages name them in parentheses.
	sectionInText = regexp.MustCompile(`\((docs/[\w/-]+\.md), ([A-Z][\w ]*)(?:, [^)]*)?\)`)
	// brokenComment is a line end in a comment.
	brokenComment = regexp.MustCompile(`\n\s*// ?`)
)

// Every page and section that a file of the repository names exists, also outside links.
func TestDocsPaths(t *testing.T) {
	named, sections := 0, 0
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
		pages := pageInText.FindAllString(string(data), -1)
		if len(pages) == 0 {
			return err
		}
		for _, page := range pages {
			named++
			if _, err := os.Stat(filepath.Join(root, page)); err != nil {
				t.Errorf("%s names %s, which does not exist", path, page)
			}
		}
		for _, m := range sectionInText.FindAllStringSubmatch(brokenComment.ReplaceAllString(string(data), " "), -1) {
			sections++
			if page, _ := os.ReadFile(filepath.Join(root, m[1])); !regexp.MustCompile("(?m)^#+ `?" + regexp.QuoteMeta(m[2]) + "`?$").Match(page) {
				t.Errorf("%s names the section %q of %s, which does not exist", path, m[2], m[1])
			}
		}
		return err
	})
	if err != nil || named == 0 || sections == 0 {
		t.Errorf("%d pages and %d sections are named: %v; want some, or nothing is checked", named, sections, err)
	}
}
