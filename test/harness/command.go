package harness

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"slices"
	"testing"
)

// Outcome is how a command of the binary ended.
type Outcome struct {
	Code           int
	Stdout, Stderr string
}

// Command runs the binary with arguments against the node's socket (by
// CILIUM_SOCK) and returns how it ended.
func (n *Node) Command(t testing.TB, args ...string) Outcome {
	t.Helper()
	if len(args) > 0 && slices.Contains([]string{"allocate", "restore", "release", "gc"}, args[0]) {
		n.ForgetAnswers() // it asks in the place of the clients
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
	return Outcome{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}
