package failpoint_test

import (
	"go/ast"
	"slices"
)

// event is a failpoint, or a call that changes the disk, by its name.
type event string

const point event = ""

// events are what a function does, in the order of its text: alternatives follow
// one another, a loop goes round twice, and what is deferred comes last. A
// function of the package that reaches no point is read in its place.
func (p *source) events(f function) []event {
	w := &walk{source: p, function: f, seen: map[string]bool{}}
	return w.body(f.Body)
}

// walk collects the events of a function.
type walk struct {
	*source
	function
	// seen are the functions that are being read, so that a recursion ends.
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
			w.deferred = slices.Concat(w.apart(n.Call), w.deferred)
		case *ast.CallExpr:
			w.call(n)
		default:
			return true
		}
		return false
	})
}

func (w *walk) twice(round ...ast.Node) {
	once := w.apart(round...)
	w.found = slices.Concat(w.found, once, once)
}

// apart returns the events of parts of the function, and appends nothing.
func (w *walk) apart(parts ...ast.Node) []event {
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
			// The one that takes it answers for the points around it.
			w.found = slices.Concat(w.found, []event{point}, w.apart(arg), []event{point})
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

// own are the functions of the package that a call may mean. Nothing is known of
// types, so a method may be any of that name.
func (w *walk) own(name, receiver string) []function {
	if receiver != "" && receiver != "expr" || w.seen[name] {
		return nil
	}
	return w.named(name)
}

// direct are the calls in a function that change the disk by themselves.
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
