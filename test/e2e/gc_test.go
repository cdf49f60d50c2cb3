package e2e

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestGCByOwner(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		router := s.AllocateFor(t, "router")
		pod := s.AllocateFor(t, "default/pod")

		before := n.Snapshot(t)
		out := n.Command(t, "gc", "--owner=default/*")
		if out.ExitCode != 0 || !strings.Contains(out.Stdout, "default/pod") || !strings.Contains(out.Stdout, pod[0]) || strings.Contains(out.Stdout, "router") {
			t.Errorf("the dry run ended with %d and printed %q; want the pod only", out.ExitCode, out.Stdout)
		}
		if !strings.Contains(out.Stderr, "--yes") {
			t.Errorf("the dry run printed to stderr %q; want it to name the flag that releases", out.Stderr)
		}
		wantCommand(t, n, command{line: "gc --yes", code: 2, stderr: "--owner"})
		before.WantSame(t, n.Snapshot(t))

		wantCommand(t, n, command{line: "gc --owner=default/* --yes", stdout: pod[0]})
		wantLeaseCount(t, n, len(router))
		wantLeased(t, n, router...)
	})
}

func TestGCByAge(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.AllocateFor(t, "router")
	s.AllocateFor(t, "default/pod")
	s.Stop(t)

	s = n.Start(t)
	s.AllocateFor(t, "router")
	wantCommand(t, n, command{line: "gc", stdout: "unknown"})
	wantCommand(t, n, command{line: "gc --unused-for=1ns --yes"})
	wantNoAttachment(t, s, "router")
	wantState(t, s, "default/pod", "held")
	wantCommand(t, n, command{line: "gc --older-than=1h --yes"})
	wantLeaseCount(t, n, 2)
	wantCommand(t, n, command{line: "gc --older-than=1ns --yes"})
	wantLeaseCount(t, n, 0)
}
