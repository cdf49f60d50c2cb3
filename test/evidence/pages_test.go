// Package evidence writes into each page of docs the table of the tests that prove its statements.
package evidence

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the tables of evidence in docs")

// root is the directory of the repository.
const root = "../.."

var (
	// generated is the table of a page.
	generated = regexp.MustCompile(`(?s)<!-- evidence -->\n.*?<!-- end -->\n`)
	// everyRow is a table that has evidence for each row. The statement is the first cell.
	everyRow = regexp.MustCompile(`<!-- evidence: every row -->\n\|.*\n\|[-|]+\|\n((?:\|.*\n)+)`)
	// number is a statement that is the number of a row.
	number   = regexp.MustCompile(`^[A-Z]?\d+$`)
	testName = regexp.MustCompile("`(?:Test|Fuzz)[A-Z]\\w*")
)

// targets has the directories whose tests "make test" leaves out, and what runs them.
var targets = map[string]string{
	"test/agent":            "agent-test",
	"test/allocator":        "test-allocator",
	"test/audit":            "audit-test",
	"test/benchbridge":      "bench-bridge",
	"test/clients":          "client-test",
	"test/external/deploy":  "test-deploy",
	"test/external/observe": "test-observe",
	"test/image":            "test-image",
	"test/kubernetes":       "cluster-test",
	"test/network":          "network-test",
	"test/whereabouts":      "plugin-test",
}

func TestTables(t *testing.T) {
	byPage := map[string][]directive{}
	for _, d := range directives(t) {
		byPage[d.page] = append(byPage[d.page], d)
	}
	for _, file := range pages(t) {
		text := read(t, file)
		name, _ := strings.CutPrefix(filepath.ToSlash(strings.TrimSuffix(file, ".md")), root+"/docs/")
		evidence := byPage[name]
		delete(byPage, name)
		if len(evidence) == 0 && !strings.Contains(text, "<!-- evidence") {
			continue
		}
		for _, problem := range unshown(text, evidence) {
			t.Errorf("%s: %s", file, problem)
		}
		if n := len(generated.FindAllString(text, -1)); n != 1 {
			t.Errorf("%s has %d blocks from <!-- evidence --> to <!-- end -->; want 1", file, n)
			continue
		}
		want := generated.ReplaceAllLiteralString(text, "<!-- evidence -->\n"+table(text, evidence)+"<!-- end -->\n")
		switch {
		case want == text:
		case *update:
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("the table of evidence of %s is not that of the tests (go test ./test/evidence -update rewrites it)", file)
		}
	}
	for name, evidence := range byPage {
		t.Errorf("%s of %s names the page %s, which does not exist", evidence[0].test, evidence[0].dir, name)
	}
}

// unshown returns a problem for each row without evidence, and for each number that is not a row.
func unshown(text string, evidence []directive) []string {
	var problems []string
	shown := map[string]bool{}
	for _, m := range everyRow.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(m[1]) {
			key := strings.TrimSpace(strings.SplitN(line, "|", 3)[1])
			if _, ok := shown[key]; ok {
				problems = append(problems, fmt.Sprintf("two rows %q", key))
			}
			shown[key] = false
		}
	}
	for _, d := range evidence {
		if _, ok := shown[d.statement]; !ok && number.MatchString(d.statement) {
			problems = append(problems, fmt.Sprintf("no row %s, of which %s of %s is evidence", d.statement, d.test, d.dir))
		}
		shown[d.statement] = true
	}
	for key, ok := range shown {
		if !ok {
			problems = append(problems, fmt.Sprintf("no test is evidence for the row %q; add %sPAGE %s to the comment of one", key, prefix, key))
		}
	}
	slices.Sort(problems)
	return problems
}

// table returns the table of a page: a row for each statement, in the order in which the page has
// them, then the others by name.
func table(page string, evidence []directive) string {
	page = generated.ReplaceAllLiteralString(page, "")
	tests := map[string]map[string][]string{}
	for _, d := range evidence {
		if tests[d.statement] == nil {
			tests[d.statement] = map[string][]string{}
		}
		tests[d.statement][d.dir] = append(tests[d.statement][d.dir], d.test)
	}
	statements := slices.SortedFunc(maps.Keys(tests), func(a, b string) int {
		if x, y := position(page, a), position(page, b); x != y {
			return x - y
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	b.WriteString("| shown | by |\n|---|---|\n")
	for _, statement := range statements {
		var cells []string
		for _, dir := range slices.Sorted(maps.Keys(tests[statement])) {
			cell := fmt.Sprintf("`%s`: %s", dir, strings.Join(slices.Compact(tests[statement][dir]), ", "))
			if target, ok := targets[dir]; ok {
				cell += fmt.Sprintf(" (`make %s`)", target)
			}
			cells = append(cells, cell)
		}
		fmt.Fprintf(&b, "| %s | %s |\n", statement, strings.Join(cells, "; "))
	}
	return b.String()
}

// position returns the place of the row with a statement, or one behind all rows.
func position(page, statement string) int {
	if i := strings.Index(page, "\n| "+statement+" |"); i >= 0 {
		return i
	}
	return len(page)
}

// A page names tests in tables only, so that no sentence has a name that a change makes wrong.
func TestNoTestInSentence(t *testing.T) {
	for _, file := range pages(t) {
		for i, line := range strings.Split(read(t, file), "\n") {
			if name := testName.FindString(line); name != "" && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d names %s; want it in the table of evidence only", file, i+1, name)
			}
		}
	}
}

// Each target of the tables exists.
func TestTargets(t *testing.T) {
	makefile := read(t, filepath.Join(root, "Makefile"))
	for dir, target := range targets {
		if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
			t.Error(err)
		}
		if !strings.Contains(makefile, "\n"+target+":") {
			t.Errorf("the Makefile has no target %s", target)
		}
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md", "docs/*/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d pages, %v; want some", pattern, len(files), err)
		}
		all = append(all, files...)
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
