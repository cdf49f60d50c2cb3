package e2e

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// command is a command line and its expected result.
type command struct {
	// line is split at spaces.
	line string
	code int
	// stdout and stderr are parts of the output.
	stdout, stderr string
}

// wantCommand runs a command and compares its result.
func wantCommand(t *testing.T, n *harness.Node, c command) {
	t.Helper()
	out := n.Command(t, strings.Fields(c.line)...)
	if out.ExitCode != c.code {
		t.Errorf("%q ended with status %d; want %d; stdout %q, stderr %q", c.line, out.ExitCode, c.code, out.Stdout, out.Stderr)
	}
	if !strings.Contains(out.Stdout, c.stdout) {
		t.Errorf("%q printed %q; want it to contain %q", c.line, out.Stdout, c.stdout)
	}
	if !strings.Contains(out.Stderr, c.stderr) {
		t.Errorf("%q printed to stderr %q; want it to contain %q", c.line, out.Stderr, c.stderr)
	}
}
