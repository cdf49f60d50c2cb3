package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pathRow is a row of the table in docs/design/how-it-works.md, The path of a request.
var pathRow = regexp.MustCompile("(?m)^\\| \\d+ \\| `([^`]+)` \\| `([^`]+)` \\| .+ \\|$")

// entryPoints are the rows that net/http and the generated server call. TestRequestPath of
// internal/sidecar compares the rows with the stacks of a request.
var entryPoints = map[string]bool{
	"listener.Accept": true, "conn.Read": true, "prepare": true, "API.ServeHTTP": true, "PostIpam.ServeHTTP": true, "handlers.allocate": true,
}

// maxPath is the largest number of functions on the path.
const maxPath = 35

func TestRequestPath(t *testing.T) {
	page := files(t, "docs", ".md")[filepath.Join("docs", "design", "how-it-works.md")]
	_, section, _ := strings.Cut(page, "\n## The path of a request\n")
	table, _, _ := strings.Cut(section, "\n## ")
	rows := pathRow.FindAllStringSubmatch(table, -1)
	if lines := strings.Count(table, "\n|") - 2; len(rows) == 0 || len(rows) != lines {
		t.Fatalf("%d of %d rows have a number, a file and a function; want all", len(rows), lines)
	}
	if len(rows) > maxPath {
		t.Errorf("%d rows; want at most %d", len(rows), maxPath)
	}
	called := map[string]bool{}
	for _, row := range rows {
		file, function := row[1], row[2]
		_, method, isMethod := strings.Cut(function, ".")
		if !isMethod {
			method = function
		}
		if !called[method] && !entryPoints[function] {
			t.Errorf("%s in %s is called by no function above it", function, file)
		}
		for name := range names(t, file, function) {
			called[name] = true
		}
	}
}

// names returns the identifiers in the body of a function, which is "Function" or "Type.Method".
func names(t *testing.T, file, function string) map[string]bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || qualified(f) != function {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				found[id.Name] = true
			}
			return true
		})
	}
	if len(found) == 0 {
		t.Errorf("%s has no function %s", file, function)
	}
	return found
}

// qualified returns the name of a function, with the type of its receiver if it has one.
func qualified(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	if id, ok := receiver.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}
