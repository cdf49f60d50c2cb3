package harness

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is one run of the binary.
type process struct {
	cmd  *exec.Cmd
	out  *output
	done chan struct{}
}

// startProcess starts the binary with a small environment of its own, so that
// no DELEGATED_IPAM_ or CNI_ variable of the caller changes a test.
func (n *Node) startProcess(t testing.TB, args []string) *process {
	t.Helper()
	line := slices.Concat(n.Under, []string{n.program(t)}, args)
	p := &process{cmd: exec.Command(line[0], line[1:]...), out: &output{}, done: make(chan struct{})}
	p.cmd.Dir = n.Dir
	p.cmd.Env = n.environment()
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the outcome is in ProcessState
	}()
	return p
}

func (n *Node) program(t testing.TB) string {
	t.Helper()
	if n.Program != "" {
		return n.Program
	}
	return Binary(t)
}

// environment passes on the search path, where coverage goes, and what the
// node sets. The race detector would sleep a second at each exit.
func (n *Node) environment() []string {
	env := append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}, n.Env...)
	if dir := os.Getenv("GOCOVERDIR"); dir != "" {
		env = append(env, "GOCOVERDIR="+dir)
	}
	return env
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// wait returns the exit status; -1 for one that a signal ended.
func (p *process) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("process %d did not end; its output:\n%s", p.cmd.Process.Pid, p.out)
		return 0
	}
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %s to process %d: %v", s, p.cmd.Process.Pid, err)
	}
}

// raced tells whether the race detector spoke.
func (p *process) raced() bool {
	return strings.Contains(p.out.String(), "WARNING: DATA RACE")
}
