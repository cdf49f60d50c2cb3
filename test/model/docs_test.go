package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// functions returns the names of the functions in the Go files of a directory.
func functions(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && !strings.HasSuffix(name, "_test.go") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var (
	code    = regexp.MustCompile("`([^`]+)`")
	removed = regexp.MustCompile(`\b(NO|DROP)_[A-Z_]+\b`)
	step    = regexp.MustCompile(`(?m)^inline (\w+)\(`)
)

// section returns the part of the page below a heading.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, after, ok := strings.Cut(page, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("docs/design/model.md has no section %q", heading)
	}
	part, _, _ := strings.Cut(after, "\n## ")
	return part
}

// column returns the code in one column of a section's table.
func column(part string, n int) []string {
	var all []string
	for line := range strings.Lines(part) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || len(cells) < n+2 {
			continue
		}
		for _, m := range code.FindAllStringSubmatch(cells[n], -1) {
			all = append(all, m[1])
		}
	}
	return all
}

//evidence:design/model functions, steps and flags of this page are those of the code and the model
func TestDocsFunctions(t *testing.T) {
	page := readFile(t, "../../docs/design/model.md")
	known := append(functions(t, "../../internal/sidecar/engine"), "IDLocks.Lock", "internal/plugin/internal/process")
	named := append(column(section(t, page, "Rules"), 4), column(section(t, page, "Steps and functions"), 2)...)
	if len(named) < 40 {
		t.Fatalf("the page names %d functions; want those of each rule and step", len(named))
	}
	for _, name := range named {
		if !slices.Contains(known, name) {
			t.Errorf("docs/design/model.md names the function %s, which internal/sidecar/engine does not have", name)
		}
	}
}

//evidence:design/model functions, steps and flags of this page are those of the code and the model
func TestDocsSteps(t *testing.T) {
	var steps []string
	for _, m := range step.FindAllStringSubmatch(readFile(t, "protocol.pml"), -1) {
		steps = append(steps, m[1])
	}
	for _, name := range column(section(t, readFile(t, "../../docs/design/model.md"), "Steps and functions"), 1) {
		if !slices.Contains(steps, name) {
			t.Errorf("docs/design/model.md names the step %s, which the model does not have", name)
		}
	}
}

// Each flag of the model is a mutant that is checked, and has a row.
//
//evidence:design/model functions, steps and flags of this page are those of the code and the model
func TestDocsFlags(t *testing.T) {
	flags := func(text string) []string {
		all := removed.FindAllString(text, -1)
		slices.Sort(all)
		return slices.Compact(all)
	}
	var checked []string
	for _, m := range mutants() {
		checked = append(checked, m.name)
	}
	slices.Sort(checked)
	checked = slices.Compact(checked)
	inModel := flags(readFile(t, "protocol.pml"))
	if !slices.Equal(checked, inModel) {
		t.Errorf("the mutants are\n%q\nand the model has the flags\n%q", checked, inModel)
	}
	if page := flags(readFile(t, "../../docs/design/model.md")); !slices.Equal(page, inModel) {
		t.Errorf("docs/design/model.md has rows for\n%q\nand the model has the flags\n%q", page, inModel)
	}
}

func TestRead(t *testing.T) {
	const ok = "State-vector 88 byte, depth reached 220, errors: 0\n  2532261 states, stored\n 13065337 transitions (= stored+matched)\n"
	for name, c := range map[string]struct {
		out      string
		last     bool
		violated string
		wrong    bool
	}{
		"complete":                        {ok, true, "", false},
		"a counterexample":                {"pan:1: assertion violated  !(twoHolders) (at depth 157)\nWarning: Search not completed\n" + strings.Replace(ok, "errors: 0", "errors: 1", 1), true, "twoHolders", false},
		"incomplete":                      {ok + "error: max search depth too small\n", true, "", true},
		"incomplete at a small depth":     {ok + "error: max search depth too small\n", false, "", false},
		"out of memory":                   {"pan: out of memory\n" + ok, true, "", true},
		"another error than an assertion": {strings.Replace(ok, "errors: 0", "errors: 1", 1), true, "", true},
		"empty":                           {"", true, "", true},
		"killed":                          {"Killed", true, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := read(c.out, c.last)
			if r.violated != c.violated || (r.err != nil) != c.wrong {
				t.Errorf("got %+v", r)
			}
			if c.violated == "" && !c.wrong && (r.states != 2532261 || r.transitions != 13065337 || r.depth != 220) {
				t.Errorf("got %+v", r)
			}
		})
	}
}
