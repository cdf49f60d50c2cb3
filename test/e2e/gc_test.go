package e2e

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestGCByOwner(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		router := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		pod := s.Allocate(t, harness.Request{Owner: "default/pod"}).Addresses()

		before := n.Snapshot(t)
		out := n.Command(t, "gc", "--owner=default/*")
		if out.ExitCode != 0 || !strings.Contains(out.Stdout, "default/pod") || !strings.Contains(out.Stdout, pod[0]) || strings.Contains(out.Stdout, "router") {
			t.Errorf("the dry run ended with %d and printed %q; want the pod alone", out.ExitCode, out.Stdout)
		}
		if !strings.Contains(out.Stderr, "--yes") {
			t.Errorf("the dry run printed to stderr %q; want it to say how to release", out.Stderr)
		}
		wantCommand(t, n, command{args: []string{"gc", "--yes"}, code: 2, stderr: "--owner"})
		before.WantSame(t, n.Snapshot(t))

		wantCommand(t, n, command{args: []string{"gc", "--owner=default/*", "--yes"}, code: 0, stdout: pod[0]})
		wantLeases(t, n, len(router))
		wantLeased(t, n, router...)
	})
}

func TestGCByAge(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.Allocate(t, harness.Request{Owner: "default/pod"})
	wantCommand(t, n, command{args: []string{"gc", "--older-than=1h", "--yes"}, code: 0})
	wantLeases(t, n, 2)
	wantCommand(t, n, command{args: []string{"gc", "--older-than=1ns", "--yes"}, code: 0})
	wantLeases(t, n, 0)
}

func TestGCUnusedForAfterRestart(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	s.Allocate(t, harness.Request{Owner: "default/pod"})
	s.Stop(t)

	s = n.Start(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	wantCommand(t, n, command{args: []string{"gc"}, code: 0, stdout: "unknown"})
	wantCommand(t, n, command{args: []string{"gc", "--unused-for=1ns", "--yes"}, code: 0})
	if s.Attachment(t, "router") != nil {
		t.Error("router was asked for longer than 1 ns ago and is still held")
	}
	wantState(t, s, "default/pod", "held")
	wantLeases(t, n, 2)
}
