package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestFill(t *testing.T) {
	const page = "a\n<!-- generated: flags of x -->\nold\n<!-- end -->\nb\n"
	got, err := fill([]byte(page), map[string]string{"flags of x": "new\n"})
	if want := "a\n<!-- generated: flags of x -->\nnew\n<!-- end -->\nb\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for name, tables := range map[string]map[string]string{
		"marker without a table": {},
		"table without a marker": {"flags of x": "new\n", "flags of y": "new\n"},
	} {
		if got, err := fill([]byte(page), tables); err == nil {
			t.Errorf("%s: got %q; want an error", name, got)
		}
	}
}

func TestMarkdown(t *testing.T) {
	const text = "serve /metrics on :port; see `doctor --repair` or --socket-mode=0660 (docs/install/ranges.md)"
	if got, want := markdown(text), "serve `/metrics` on `:port`; see `doctor --repair` or `--socket-mode=0660` ([ranges.md](../install/ranges.md))"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

func TestLint(t *testing.T) {
	for program, definitions := range programs() {
		problems, err := testutil.GatherAndLint(definitions)
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v, %v; want no problems", program, problems, err)
		}
	}
}
