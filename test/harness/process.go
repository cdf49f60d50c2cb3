package harness

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/strace"
)

// process is a running binary.
type process struct {
	cmd  *exec.Cmd
	out  *lockedBuffer
	done chan struct{}
}

// startProcess starts the binary with a minimal environment, so that no DELEGATED_IPAM_ or
// CNI_ variable of the caller affects a test.
func (n *Node) startProcess(t testing.TB, args []string) *process {
	t.Helper()
	line := slices.Concat(n.Wrapper, []string{n.program(t)}, args)
	p := &process{cmd: exec.Command(line[0], line[1:]...), out: &lockedBuffer{}, done: make(chan struct{})}
	p.cmd.Dir = n.Dir
	p.cmd.Env = n.Environment()
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	check.Must(t, p.cmd.Start())
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

// Environment returns the search path, the coverage directory and the node's settings. By
// default the race detector sleeps a second at each exit.
func (n *Node) Environment() []string {
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

// wait returns the exit status; -1 if a signal terminated the process.
func (p *process) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(waitTimeout):
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

// hasDataRace reports whether the race detector printed a warning.
func (p *process) hasDataRace() bool {
	return strings.Contains(p.out.String(), "WARNING: DATA RACE")
}

// lockedBuffer collects the output of a process that is still running.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p.
func (o *lockedBuffer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String returns everything written so far.
func (o *lockedBuffer) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// ReadTrace waits until strace has written the exit of the daemon, and returns the trace.
func ReadTrace(t testing.TB, file string, pid int) string {
	t.Helper()
	var trace string
	Eventually(t, "strace to write the exit of the daemon", func() error {
		data, err := os.ReadFile(file)
		trace = string(data)
		ends := func(s strace.Step) bool { return s.PID == pid && s.Call == strace.Exited }
		if err == nil && !slices.ContainsFunc(strace.Parse(trace), ends) {
			err = errors.New("the exit is missing")
		}
		return err
	})
	return trace
}
