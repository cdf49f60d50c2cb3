package evidence

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// prefix begins a directive: a comment of a test, or one above a case in it, with a page below docs
// and the statement of that page which the test proves.
//
//	//evidence:design/reliability the node is renamed
const prefix = "//evidence:"

// directive is evidence for a statement.
type directive struct {
	page      string // below docs, without .md
	statement string
	dir       string // of the test
	test      string // its name, and its case in quotes if the directive is above one
}

// directives returns the directives of every test of the repository, in the order of directory and
// file.
func directives(t *testing.T) []directive {
	t.Helper()
	var all []directive
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		code, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		found, problems, err := parse(name, code)
		for _, p := range problems {
			t.Error(p)
		}
		all = append(all, found...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// parse returns the directives of a file, and the problem of each that is not part of a test or names
// no statement.
func parse(name string, code []byte) (all []directive, problems []string, err error) {
	if !bytes.Contains(code, []byte(prefix)) {
		return nil, nil, nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, code, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			text, ok := strings.CutPrefix(comment.Text, prefix)
			if !ok {
				continue
			}
			page, statement, _ := strings.Cut(text, " ")
			test := testAt(file, comment)
			if test == "" || page == "" || statement == "" {
				problems = append(problems, fmt.Sprintf("%s: %q; want a page and a statement, in the comment of a test or above a case in it", files.Position(comment.Pos()), comment.Text))
				continue
			}
			all = append(all, directive{page, statement, path.Dir(name), test})
		}
	}
	return all, problems, nil
}

// testAt returns the test of whose comment a comment is part, or the test and the case that begins
// below it, as `TestRelease`, "last claim". The name of a case is its first string.
func testAt(file *ast.File, comment *ast.Comment) string {
	i := slices.IndexFunc(file.Decls, func(d ast.Decl) bool { return comment.Pos() < d.End() })
	if i < 0 {
		return ""
	}
	function, ok := file.Decls[i].(*ast.FuncDecl)
	if !ok || !strings.HasPrefix(function.Name.Name, "Test") && !strings.HasPrefix(function.Name.Name, "Fuzz") {
		return ""
	}
	test := "`" + function.Name.Name + "`"
	if comment.Pos() < function.Name.Pos() {
		return test
	}
	name := ""
	ast.Inspect(function.Body, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if ok && literal.Kind == token.STRING && literal.Pos() > comment.End() && name == "" {
			name, _ = strconv.Unquote(literal.Value)
		}
		return name == ""
	})
	if name == "" {
		return ""
	}
	return test + " \"" + name + "\""
}
