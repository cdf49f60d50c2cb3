// Package layers checks that import rules and links name what exists, and that each fact of a profile
// has one reader.
package layers

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	// link is a link of a page, mention the path of a page in any file, as in the URL of a runbook, and
	// section a page with the heading of a section, as comments name them.
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	mention = regexp.MustCompile(`\bdocs/[\w/-]+\.md(?:#[\w-]+)?`)
	section = regexp.MustCompile(`\((docs/[\w/-]+\.md), ([A-Z][\w ]*)(?:, [^)]*)?\)`)

	fenced      = regexp.MustCompile("(?ms)^```.*?^```$")
	brokenLine  = regexp.MustCompile(`\n\s*(?://|#) ?`)
	heading     = regexp.MustCompile(`(?m)^#+ (.+)$`)
	named       = regexp.MustCompile(`<a\s+id="([^"]+)">`)
	headingLink = regexp.MustCompile(`\[([^\]]*)\]\([^()]*\)`)
)

// Every page, section and file that a link, a comment, a manifest or a message names exists.
func TestLinks(t *testing.T) {
	repository := os.DirFS(root)
	checked := 0
	check := func(file, target string) {
		checked++
		name, anchor, _ := strings.Cut(target, "#")
		if _, err := fs.Stat(repository, name); err != nil {
			t.Errorf("%s names %s, which does not exist", file, name)
		} else if anchor != "" && !slices.Contains(anchors(read(t, name)), anchor) {
			t.Errorf("%s names %s, which has no such heading", file, target)
		}
	}
	err := fs.WalkDir(repository, ".", func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", ".cache", "bin", "run"}, file) {
			return fs.SkipDir
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text := read(t, file)
		for _, m := range mention.FindAllString(text, -1) {
			check(file, m)
		}
		for _, m := range section.FindAllStringSubmatch(brokenLine.ReplaceAllString(text, " "), -1) {
			check(file, m[1]+"#"+anchors("# " + m[2])[0])
		}
		if !strings.HasSuffix(file, ".md") {
			return nil
		}
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if name, anchor, _ := strings.Cut(m[1], "#"); name == "" {
				check(file, file+"#"+anchor)
			} else if !strings.Contains(m[1], "://") {
				check(file, path.Join(path.Dir(file), m[1]))
			}
		}
		return nil
	})
	if err != nil || checked < 500 {
		t.Errorf("%d links, %v; want all", checked, err)
	}
}

func TestAnchors(t *testing.T) {
	want := []string{"a-b-c", "d_e-f-g", "named"}
	if got := anchors("# A b-c:\n```\n# no\n```\n### `d_E` [F](x.md), g\n<a id=\"named\">H</a>"); !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

// anchors returns the anchors of a page: those of its headings by GitHub's rule (in lower case, blanks
// as dashes, without punctuation), and its own.
func anchors(page string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, headingLink.ReplaceAllString(m[1], "$1")))
	}
	for _, m := range named.FindAllStringSubmatch(page, -1) {
		all = append(all, m[1])
	}
	return all
}

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
