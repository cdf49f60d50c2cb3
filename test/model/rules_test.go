package main

import (
	"slices"
	"testing"
)

// A change of the protocol that moves a rule's lines is noticed without the nightly exploration.
func TestRulesFindTheirLines(t *testing.T) {
	for _, r := range rules {
		if _, err := apply("../..", slices.Concat(r.edits, limits)); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	}
}
