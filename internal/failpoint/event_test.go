package failpoint_test

import (
	"go/ast"
	"slices"
)

// event is a failpoint, or the name of a call that changes the disk.
type event string

const point event = ""

// events returns the events of a function in the order of its text: alternatives follow one another,
// a loop runs twice, and deferred calls come last. A function of the package that reaches no point
// is inlined.
func (p *source) events(f function) []event {
	w := &walk{source: p, function: f, seen: map[string]bool{}}
	return w.body(f.Body)
}

// walk collects the events of a function.
type walk struct {
	*source
	function
	// seen are the functions that are being inlined, so that a recursion ends.
	seen     map[string]bool
	found    []event
	deferred []event
}

func (w *walk) body(b *ast.BlockStmt) []event {
	w.seen[w.Name.Name] = true
	defer delete(w.seen, w.Name.Name)
	w.read(b)
	return slices.Concat(w.found, w.deferred)
}

// read appends the events of a part of the function.
func (w *walk) read(part ast.Node) {
	if part == nil {
		return
	}
	ast.Inspect(part, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt:
			w.twice(n.Cond, n.Body, n.Post)
		case *ast.RangeStmt:
			w.read(n.X)
			w.twice(n.Body)
		case *ast.DeferStmt:
			w.deferred = slices.Concat(w.separately(n.Call), w.deferred)
		case *ast.CallExpr:
			w.call(n)
		default:
			return true
		}
		return false
	})
}

func (w *walk) twice(round ...ast.Node) {
	once := w.separately(round...)
	w.found = slices.Concat(w.found, once, once)
}

// separately returns the events of parts of the function without appending them.
func (w *walk) separately(parts ...ast.Node) []event {
	before := w.found
	w.found = nil
	for _, n := range parts {
		w.read(n)
	}
	found := w.found
	w.found = before
	return found
}

// call appends the events of a call, those of its arguments first.
func (w *walk) call(c *ast.CallExpr) {
	name, receiver := w.callee(c)
	own := w.own(name, receiver)
	w.read(c.Fun)
	for _, arg := range c.Args {
		if _, isFunc := arg.(*ast.FuncLit); isFunc && slices.ContainsFunc(own, function.reaches) {
			// The function that takes it is responsible for the points around it.
			w.found = slices.Concat(w.found, []event{point}, w.separately(arg), []event{point})
			continue
		}
		w.read(arg)
	}
	switch {
	case w.isPoint(c):
		w.found = append(w.found, point)
	case w.isChange(w.function, c), receiver == "" && w.takes(name) && w.reaches():
		w.found = append(w.found, event(name))
	default:
		w.inline(own)
	}
}

// inline appends the events of functions that leave the points to their callers.
func (w *walk) inline(own []function) {
	for _, f := range own {
		if !f.reaches() {
			inner := &walk{source: w.source, function: f, seen: w.seen}
			w.found = append(w.found, inner.body(f.Body)...)
		}
	}
}

// own returns the functions of the package that a call may mean. Types are unknown, so a method may
// be any of that name.
func (w *walk) own(name, receiver string) []function {
	if receiver != "" && receiver != "expr" || w.seen[name] {
		return nil
	}
	return w.named(name)
}

// direct returns the calls in a function that themselves change the disk.
func (p *source) direct(f function) []string {
	var found []string
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok && p.isChange(f, c) {
			name, _ := f.callee(c)
			found = append(found, name)
		}
		return true
	})
	return found
}
