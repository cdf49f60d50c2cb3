package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

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
