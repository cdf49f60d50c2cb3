package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// wantAddresses compares addresses; want must not be empty.
func wantAddresses(t *testing.T, got, want []string) {
	t.Helper()
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("got addresses %q; want %q", got, want)
	}
}

// wantDisjoint fails the test for each address that both lists have.
func wantDisjoint(t *testing.T, a, b []string) {
	t.Helper()
	for _, ip := range a {
		if slices.Contains(b, ip) {
			t.Errorf("%s was allocated twice", ip)
		}
	}
}

// wantLeaseCount wants that many leases in the plugin's store.
func wantLeaseCount(t *testing.T, n *harness.Node, want int) {
	t.Helper()
	if got := n.Leases(t); len(got) != want {
		t.Errorf("the plugin's store has %v; want %d leases", got, want)
	}
}

// wantLeased fails the test for each address that is not in the plugin's store.
func wantLeased(t *testing.T, n *harness.Node, ips ...string) {
	t.Helper()
	leased := map[string]bool{}
	for _, l := range n.Leases(t) {
		leased[l.IP.String()] = true
	}
	for _, ip := range ips {
		if !leased[ip] {
			t.Errorf("the plugin's store lacks %s; it has %v", ip, n.Leases(t))
		}
	}
}

// wantState returns the attachment of an owner, which must be in that state.
func wantState(t *testing.T, s *harness.Daemon, owner, state string) harness.Attachment {
	t.Helper()
	a := s.Attachment(t, owner)
	if a == nil || a.State != state {
		t.Fatalf("the attachment of %s is %+v; want state %s", owner, a, state)
	}
	return *a
}

func wantNoAttachment(t *testing.T, s *harness.Daemon, owner string) {
	t.Helper()
	if a := s.Attachment(t, owner); a != nil {
		t.Errorf("%s has the attachment %+v; want none", owner, *a)
	}
}

// waitReleased waits until the owner has no attachment.
func waitReleased(t *testing.T, s *harness.Daemon, owner string) {
	t.Helper()
	harness.Eventually(t, "the attachment of "+owner+" to be released", func() error {
		if a := s.Attachment(t, owner); a != nil {
			return fmt.Errorf("the list has %+v", *a)
		}
		return nil
	})
}

// wantNotReady wants readiness to be an error that contains each text.
func wantNotReady(t *testing.T, ready error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if ready == nil || !strings.Contains(ready.Error(), text) {
			t.Errorf("readiness is %v; want an error with %q", ready, text)
		}
	}
}

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
