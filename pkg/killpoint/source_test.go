package killpoint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// changing are the names of functions and methods that change the disk.
var changing = []string{
	"Chmod", "Chown", "Lchown", "Chtimes", "Cleanup", "CloseAtomicallyReplace", "Create", "CreateTemp", "Link", "Mkdir",
	"MkdirAll", "MkdirTemp", "NewPendingFile", "OpenFile", "Remove", "RemoveAll", "Rename", "Symlink", "Sync",
	"Truncate", "Write", "WriteAt", "WriteFile", "WriteString",
}

// source is the parsed code of a package, tests left out.
type source struct {
	functions []*ast.FuncDecl
	// methods tells that any receiver counts, not only package os.
	methods bool
}

// change is one call that changes the disk.
type change struct {
	name string
	at   token.Pos
}

func parse(t *testing.T, dir string, methods bool) *source {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	p, set := &source{methods: methods}, token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				p.functions = append(p.functions, f)
			}
		}
	}
	return p
}

// unguarded returns the functions that change the disk without a kill point
// before and after. One that reaches no point at all passes the duty on to those
// that call it, unless nobody does or other packages can.
func (p *source) unguarded() []string {
	var bad []string
	for _, f := range p.functions {
		changes, points := p.changes(f), p.points(f)
		if len(changes) == 0 || len(points) == 0 && !f.Name.IsExported() && p.called(f.Name.Name) {
			continue
		}
		for _, c := range changes {
			before := slices.ContainsFunc(points, func(at token.Pos) bool { return at < c.at })
			after := slices.ContainsFunc(points, func(at token.Pos) bool { return at > c.at })
			if !before || !after {
				bad = append(bad, f.Name.Name)
				break
			}
		}
	}
	return bad
}

// changes are the calls in a function that change the disk, by themselves or in a
// function of the package that reaches no point. What is handed as a function
// to one that does reach points is done between those.
func (p *source) changes(f *ast.FuncDecl) []change { return p.changesIn(f, map[string]bool{}) }

func (p *source) changesIn(f *ast.FuncDecl, seen map[string]bool) []change {
	seen[f.Name.Name] = true
	var found []change
	ast.Inspect(f.Body, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name, receiver := callee(c)
		own := p.function(name)
		switch {
		case own != nil && receiver != "os" && len(p.points(own)) > 0:
			return false
		case own != nil && receiver != "os" && !seen[name] && len(p.changesIn(own, seen)) > 0,
			slices.Contains(changing, name) && (p.methods && receiver != "" || receiver == "os") && !onlyReads(c):
			found = append(found, change{name, c.Pos()})
		}
		return true
	})
	delete(seen, f.Name.Name)
	return found
}

// points are the places in a function where a kill point is reached.
func (p *source) points(f *ast.FuncDecl) []token.Pos {
	var found []token.Pos
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			if name, receiver := callee(c); name == "Reach" && receiver == "killpoint" {
				found = append(found, c.Pos())
			}
		}
		return true
	})
	return found
}

// function is the one of that name that changes something or guards it: a method
// of the package may share its name with one of another type.
func (p *source) function(name string) *ast.FuncDecl {
	i := slices.IndexFunc(p.functions, func(f *ast.FuncDecl) bool { return f.Name.Name == name && !f.Name.IsExported() })
	if i < 0 {
		return nil
	}
	return p.functions[i]
}

func (p *source) called(name string) bool {
	return slices.ContainsFunc(p.functions, func(f *ast.FuncDecl) bool {
		found := false
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				called, _ := callee(c)
				found = found || called == name
			}
			return true
		})
		return found
	})
}

// callee is the name of what is called, and what stands before its dot: "expr"
// for more than a name, empty for a function of the package.
func callee(c *ast.CallExpr) (name, receiver string) {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name, ""
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return f.Sel.Name, x.Name
		}
		return f.Sel.Name, "expr"
	}
	return "", ""
}

// onlyReads tells whether a file is opened with flags that change nothing.
func onlyReads(c *ast.CallExpr) bool {
	reads := false
	for _, arg := range c.Args {
		ast.Inspect(arg, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.Name == "O_RDONLY" {
				reads = true
			}
			return true
		})
	}
	return reads
}
