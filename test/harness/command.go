package harness

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"slices"
	"testing"
)

// CommandResult is the exit status and the output of a command.
type CommandResult struct {
	ExitCode       int
	Stdout, Stderr string
}

// Command runs the binary with arguments against the node's socket, which CILIUM_SOCK
// names.
func (n *Node) Command(t testing.TB, args ...string) CommandResult {
	t.Helper()
	if len(args) > 0 && slices.Contains([]string{"allocate", "restore", "release", "gc"}, args[0]) {
		n.ResetHistory() // the command changes what the clients hold
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, Binary(t), args...)
	cmd.Dir = n.Dir
	cmd.Env = append(n.environment(), "CILIUM_SOCK="+n.Socket)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", cmd, err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s did not end; stdout:\n%s\nstderr:\n%s", cmd, &stdout, &stderr)
	}
	return CommandResult{ExitCode: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}
