package main

import (
	"fmt"
	"io"
	"strings"
)

// report prints a row for each case, and a line with the sum. The error names the cases with a
// wrong result.
func report(w io.Writer, checks []check, results []result) error {
	fmt.Fprintln(w, "| case | plugin and bounds | states | transitions | depth | result |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|")
	var wrong []string
	states, passed, caught := 0, 0, 0
	for i, c := range checks {
		r := results[i]
		text, right := c.verdict(r)
		if !right {
			wrong = append(wrong, fmt.Sprintf("%s: %s", c.name, text))
		}
		if right && c.violated != "" {
			caught++
		}
		if right && c.violated == "" {
			passed++
			states += r.states
		}
		fmt.Fprintf(w, "| %s | %s | %d | %d | %d | %s |\n", c.name, c.bounds(), r.states, r.transitions, r.depth, text)
	}
	fmt.Fprintf(w, "model: %d configurations hold in %d states, %d mutants fail, %d wrong\n", passed, states, caught, len(wrong))
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "\n"))
	}
	return nil
}

// verdict describes how a run ended, and reports whether that is its expected end.
func (c check) verdict(r result) (text string, right bool) {
	switch {
	case r.err != nil:
		return "error: " + r.err.Error(), false
	case r.violated != "":
		return fmt.Sprintf("%s, after %d steps", r.violated, r.depth), r.violated == c.violated
	case c.violated != "":
		return "**passes, and must not**", false
	default:
		return "holds", true
	}
}

// bounds returns the definitions of a run without the rule that it removes.
func (c check) bounds() string {
	var all []string
	for _, f := range c.flags {
		if d := strings.TrimPrefix(f, "-D"); d != c.name {
			all = append(all, d)
		}
	}
	return strings.Join(all, " ")
}
