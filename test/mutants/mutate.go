package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one change of a source file.
type mutant struct {
	file string
	line int
	// start and end are the offsets of the text that is replaced.
	start, end int
	text       string
	// kind is the mutation, such as "negate condition".
	kind string
}

// String describes the mutant in the report.
func (m mutant) String() string { return fmt.Sprintf("%s:%d: %s", m.file, m.line, m.kind) }

// apply returns the source with the change.
func (m mutant) apply(source []byte) []byte {
	return append(append(append([]byte(nil), source[:m.start]...), m.text...), source[m.end:]...)
}

// operators are the binary operators with their replacements. The boundary of a
// comparison moves by one; its negation is a mutation of the condition.
var operators = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">",
	token.EQL: "!=", token.NEQ: "==", token.LAND: "||", token.LOR: "&&",
	token.ADD: "-", token.SUB: "+",
}

// mutantsOf returns every mutant of the packages in and below a directory, in the order of the text.
func mutantsOf(directory string) ([]mutant, error) {
	var all []mutant
	err := filepath.WalkDir(directory, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found, err := mutantsIn(path, source)
		all = append(all, found...)
		return err
	})
	return all, err
}

// mutantsIn returns the mutants of one file.
func mutantsIn(path string, source []byte) ([]mutant, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	c := collector{set: set, path: path, source: source}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			ast.Inspect(f.Body, c.node)
		}
	}
	return c.found, nil
}

// collector gathers the mutants of a file.
type collector struct {
	set    *token.FileSet
	path   string
	source []byte
	found  []mutant
}

func (c *collector) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		c.negate(n.Cond)
	case *ast.ForStmt:
		c.negate(n.Cond)
	case *ast.BinaryExpr:
		// Strings cannot be subtracted.
		text, ok := operators[n.Op]
		if ok && !(n.Op == token.ADD && (isString(n.X) || isString(n.Y))) {
			c.replace(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), text, fmt.Sprintf("%s becomes %s", n.Op, text))
		}
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt:
		c.replace(n.Pos(), n.End(), "", "remove "+c.text(n))
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			c.replace(n.Pos(), n.End(), "", "remove "+c.text(n))
		}
	case *ast.ReturnStmt:
		c.dropError(n)
	}
	return true
}

func (c *collector) negate(cond ast.Expr) {
	if cond != nil {
		c.replace(cond.Pos(), cond.End(), "!("+c.text(cond)+")", "negate "+c.text(cond))
	}
}

// dropError returns nil in place of an error that is the last result.
func (c *collector) dropError(n *ast.ReturnStmt) {
	if len(n.Results) == 0 {
		return
	}
	last := n.Results[len(n.Results)-1]
	id, ok := last.(*ast.Ident)
	named := !ok || id.Name == "err" || strings.HasPrefix(id.Name, "Err") // others are left out
	if text := c.text(last); named && strings.Contains(strings.ToLower(text), "err") {
		c.replace(last.Pos(), last.End(), "nil", "return nil instead of "+text)
	}
}

func (c *collector) replace(from, to token.Pos, text, kind string) {
	at := c.set.Position(from)
	kind, _, _ = strings.Cut(kind, "\n")
	c.found = append(c.found, mutant{c.path, at.Line, at.Offset, c.set.Position(to).Offset, text, kind})
}

func (c *collector) text(n ast.Node) string {
	return string(c.source[c.set.Position(n.Pos()).Offset:c.set.Position(n.End()).Offset])
}

func isString(x ast.Expr) bool {
	lit, ok := x.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING
}
