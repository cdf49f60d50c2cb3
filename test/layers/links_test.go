package layers

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const (
	alertsFile = "deploy/prometheus/alerts.yaml"
	// public is the address of the repository's files.
	public = "https://github.com/delegated-ipam/delegated-ipam/blob/main/"
)

// root is the directory of the repository.
const root = "../.."

var (
	// linkInDocs is the target of a link.
	linkInDocs = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	// headingInDocs is the text of a heading.
	headingInDocs = regexp.MustCompile(`(?m)^#+ (.+)$`)
	alertName     = regexp.MustCompile(`(?m)^ +- alert: (.*)$`)
	fencedInDocs  = regexp.MustCompile("(?ms)^```.*?^```$")
	// linkedText is a link; only its text is shown.
	linkedText = regexp.MustCompile(`\[([^\]]*)\]\([^()]*\)`)
)

func TestLinks(t *testing.T) {
	pages := files(t, "docs", ".md")
	for _, dir := range []string{"cmd", "deploy", "internal", "pkg", "test"} {
		maps.Copy(pages, files(t, dir, ".md"))
	}
	for _, page := range []string{".github/PULL_REQUEST_TEMPLATE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"} {
		pages[page] = read(t, page)
	}
	checked := 0
	for page, text := range pages {
		for _, m := range linkInDocs.FindAllStringSubmatch(fencedInDocs.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			if problem := broken(t, page, m[1]); problem != "" {
				t.Errorf("%s has a link to %s: %s", page, m[1], problem)
			}
		}
	}
	if checked == 0 {
		t.Error("the docs have no link; nothing is checked")
	}
}

func TestRunbooks(t *testing.T) {
	text := read(t, alertsFile)
	alerts := alertName.FindAllStringSubmatch(text, -1)
	if runbooks := strings.Count(text, "runbook_url: "); len(alerts) == 0 || runbooks != len(alerts) {
		t.Errorf("%s has %d alerts and %d runbooks; want one for each", alertsFile, len(alerts), runbooks)
	}
	for _, m := range alerts {
		link := "docs/operate/operations.md#" + strings.ToLower(m[1])
		if problem := broken(t, "README.md", link); problem != "" || !strings.Contains(text, "runbook_url: "+public+link+"\n") {
			t.Errorf("the runbook of %s is not %s, or its target does not exist: %s", m[1], public+link, problem)
		}
	}
}

func TestBrokenLinks(t *testing.T) {
	for link, is := range map[string]string{
		"nowhere.md": "the file does not exist", "../reference/plugins.md#nowhere": "that page has no such heading", "#nowhere": "that page has no such heading",
		"../reference/plugins.md": "", "../../pkg": "", "how-it-works.md#on-disk": "", "#known-limits": "",
	} {
		if got := broken(t, "docs/design/how-it-works.md", link); got != is {
			t.Errorf("%s is said to be %q; want %q", link, got, is)
		}
	}
}

// broken returns the fault of a link of a page; empty if its target exists.
func broken(t *testing.T, page, link string) string {
	t.Helper()
	path, anchor, _ := strings.Cut(link, "#")
	target := page
	if path != "" {
		target = filepath.Join(filepath.Dir(page), path)
	}
	if _, err := os.Stat(filepath.Join(root, target)); err != nil {
		return "the file does not exist"
	}
	if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
		return "that page has no such heading"
	}
	return ""
}

// anchors returns the anchors of the headings of a page by GitHub's rule: in lower case, blanks as
// dashes, without punctuation.
func anchors(text string) []string {
	var all []string
	for _, m := range headingInDocs.FindAllStringSubmatch(fencedInDocs.ReplaceAllString(text, ""), -1) {
		heading := linkedText.ReplaceAllString(m[1], "$1")
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, heading))
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
