package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// uninstall returns the command line with the paths of a node.
func uninstall(n *harness.Node, flags ...string) []string {
	return append([]string{"uninstall", "--yes", "--state-dir=" + n.StateDir, "--socket-path=" + n.Socket}, flags...)
}

// wantUninstall runs uninstall and wants its exit status, and words on its output.
func wantUninstall(t *testing.T, n *harness.Node, code int, words ...string) {
	t.Helper()
	out := n.Command(t, uninstall(n)...)
	if out.ExitCode != code {
		t.Errorf("uninstall ended with status %d; want %d:\n%s%s", out.ExitCode, code, out.Stdout, out.Stderr)
	}
	for _, word := range words {
		if !strings.Contains(out.Stdout+out.Stderr, word) {
			t.Errorf("uninstall lacks %q:\n%s%s", word, out.Stdout, out.Stderr)
		}
	}
}

// wantNothing wants no file of a daemon on the node.
func wantNothing(t *testing.T, n *harness.Node) {
	t.Helper()
	if _, err := os.Lstat(n.StateDir); !os.IsNotExist(err) {
		t.Errorf("the state directory exists: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(n.Dir, ".socket-*"))
	check.Must(t, err)
	if _, err := os.Lstat(n.Socket); !os.IsNotExist(err) || len(left) > 0 {
		t.Errorf("the socket exists (%v), or a staging directory: %q", err, left)
	}
}

func TestUninstall(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		s.AllocateFor(t, "router")
		s.Allocate(t, harness.Request{Owner: "pod", Expire: true})
		wantCommand(t, n, command{line: "release --all --yes --wait=1m"})
		wantLeaseCount(t, n, 0)
		s.Stop(t)
		wantUninstall(t, n, 0, "removed "+n.StateDir)
		wantNothing(t, n)
		wantUninstall(t, n, 0, "nothing to remove")
		wantNothing(t, n)
		// What another installation needs is complete.
		n.Start(t).AllocateFor(t, "router")
	})
}

// The refusals of a removal leave the journal to the next daemon.
func TestUninstallRefused(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	held := s.AllocateFor(t, "router")

	out := n.Command(t, uninstall(n, "--timeout=10ms")...)
	if out.ExitCode != 1 {
		t.Errorf("with a running daemon: status %d", out.ExitCode)
	}
	for _, word := range []string{"waiting for the end of the daemon", "held by PID ", "waited for 10ms"} {
		if !strings.Contains(out.Stderr, word) {
			t.Errorf("with a running daemon: %q lacks %q", out.Stderr, word)
		}
	}
	wantAddresses(t, s.AllocateFor(t, "router"), held)

	s.Kill(t)
	wantUninstall(t, n, 1, "the journal has 1 attachments", "router of pool default (held", held[0], "delegated-ipam release --all --yes")
	next := n.Start(t)
	wantAddresses(t, next.AllocateFor(t, "router"), held)

	wantCommand(t, n, command{line: "release --all --yes"})
	harness.Eventually(t, "the removal to be on disk", func() error {
		left, err := oracle.Journal(n.StateDir)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%+v", left)
		}
		return err
	})
	next.Kill(t)
	wantUninstall(t, n, 0, "removed "+n.Socket)
	wantNothing(t, n)
	wantLeaseCount(t, n, 0)
}

// beginUninstall starts uninstall, wants it to print lines with these words, and calls a function after each. It
// returns a function that waits for its success.
func beginUninstall(t *testing.T, n *harness.Node, after func(), lines ...string) (end func()) {
	t.Helper()
	cmd := exec.Command(harness.Binary(t), uninstall(n)...)
	stderr, err := cmd.StderrPipe()
	check.Must(t, errors.Join(err, cmd.Start()))
	output := bufio.NewReader(stderr)
	for _, want := range lines {
		line, err := output.ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Errorf("the command prints %q, %v; want %q", line, err, want)
		}
		after()
	}
	return func() {
		t.Helper()
		rest, err := io.ReadAll(output)
		if err := errors.Join(err, cmd.Wait()); err != nil {
			t.Errorf("%v\n%s", err, rest)
		}
		wantNothing(t, n)
	}
}
