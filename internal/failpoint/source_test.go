package failpoint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// source is the parsed code of a package without its tests.
type source struct {
	functions []function
	// methods is set for a package with open files: methods and functions that write to an
	// io.Writer count too.
	methods bool
}

// function is a function with the names by which its file imports packages.
type function struct {
	*ast.FuncDecl
	imports map[string]string
}

func parse(t *testing.T, dir string, methods bool) *source {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	check.Must(t, err)
	p, set := &source{methods: methods}, token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		check.Must(t, err)
		imports := importsOf(file)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				p.functions = append(p.functions, function{f, imports})
			}
		}
	}
	return p
}

// importsOf maps the name of each imported package in a file to its own name.
func importsOf(file *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range file.Imports {
		long, _ := strconv.Unquote(spec.Path.Value)
		own := path.Base(long)
		if _, err := strconv.Atoi(strings.TrimPrefix(own, "v")); err == nil {
			own = path.Base(path.Dir(long)) // such as renameio/v2
		}
		name := own
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = own
	}
	return names
}

// named returns the unexported functions and methods of a name.
func (p *source) named(name string) []function {
	var found []function
	for _, f := range p.functions {
		if f.Name.Name == name && !f.Name.IsExported() {
			found = append(found, f)
		}
	}
	return found
}

// called reports whether a function of the package calls one of that name.
func (p *source) called(name string) bool {
	return slices.ContainsFunc(p.functions, func(f function) bool {
		found := false
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				called, _ := f.callee(c)
				found = found || called == name
			}
			return true
		})
		return found
	})
}

// callee returns the name of the called function, and what is before its dot: the name of a package,
// "expr" for anything else, or nothing.
func (f function) callee(c *ast.CallExpr) (name, receiver string) {
	switch called := c.Fun.(type) {
	case *ast.Ident:
		return called.Name, ""
	case *ast.SelectorExpr:
		if x, ok := called.X.(*ast.Ident); ok && f.imports[x.Name] != "" {
			return called.Sel.Name, f.imports[x.Name]
		}
		return called.Sel.Name, "expr"
	}
	return "", ""
}

// takes reports whether the function has a parameter of that name that is a function.
func (f function) takes(name string) bool {
	return slices.ContainsFunc(f.Type.Params.List, func(field *ast.Field) bool {
		_, isFunc := field.Type.(*ast.FuncType)
		return isFunc && slices.ContainsFunc(field.Names, func(id *ast.Ident) bool { return id.Name == name })
	})
}

// reaches reports whether the function itself reaches a failpoint.
func (f function) reaches() bool {
	found := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			found = found || f.isPoint(c)
		}
		return true
	})
	return found
}

func (f function) isPoint(c *ast.CallExpr) bool {
	name, receiver := f.callee(c)
	return name == "Reach" && receiver == "failpoint"
}
