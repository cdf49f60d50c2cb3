// Package checktest compares the findings of doctor's checks with expected ones.
package checktest

import (
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// Want checks the states of findings, that their messages and remedies contain each of the
// texts, and WantRemedies.
func Want(t *testing.T, found []check.Finding, states []check.State, texts ...string) {
	t.Helper()
	var got []check.State
	var all strings.Builder
	for _, f := range found {
		got = append(got, f.State)
		all.WriteString(f.Message + " | " + f.Remedy + "\n")
	}
	if !slices.Equal(got, states) {
		t.Errorf("states are %q; want %q\n%s", got, states, all.String())
	}
	for _, text := range texts {
		if !strings.Contains(all.String(), text) {
			t.Errorf("the findings do not contain %q:\n%s", text, all.String())
		}
	}
	WantRemedies(t, found)
}

// WantRemedies checks that each finding has a message, and a remedy unless it is OK.
func WantRemedies(t *testing.T, found []check.Finding) {
	t.Helper()
	for _, f := range found {
		if f.Message == "" || (f.State != check.OK) != (f.Remedy != "") {
			t.Errorf("%+v lacks its message or remedy, or has a remedy although it is ok", f)
		}
	}
}
