package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A change of the protocol that moves a rule's lines is noticed without the nightly exploration.
func TestRulesFindTheirLines(t *testing.T) {
	all := limits
	for _, r := range rules {
		all = append(all, r.edits...)
	}
	for _, e := range all {
		source, err := os.ReadFile(filepath.Join("../../internal/sidecar/engine/protocol", e.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), e.old); n != 1 {
			t.Errorf("%s has %d times %q; want once", e.file, n, e.old)
		}
	}
}
