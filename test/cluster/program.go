package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Program is a command that is started, killed and restarted. The output of all its processes goes
// to one file.
type Program struct {
	name string
	args []string
	env  []string
	log  *os.File
	// namespaces are the CLONE_NEW* flags of each process.
	namespaces uintptr

	mu      sync.Mutex
	current *Process
}

// Process is a process of a program.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// NewProgram defines a program, which is killed with the test. Its output is appended to NAME.log
// in dir; env holds NAME=value settings that are added to the environment of the test.
func NewProgram(t testing.TB, dir, name string, env []string, args ...string) *Program {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	harness.Must(t, err)
	p := &Program{name: name, args: args, env: env, log: log}
	t.Cleanup(func() {
		p.End(syscall.SIGKILL)
		log.Close()
	})
	return p
}

// InNamespaces makes the program start its processes in new namespaces, given as CLONE_NEW* flags.
// With CLONE_NEWPID all processes of the namespace have ended when the started one is done.
func (p *Program) InNamespaces(flags uintptr) { p.namespaces = flags }

// Name returns the name of the program.
func (p *Program) Name() string { return p.name }

// Note writes a line of the test into the log.
func (p *Program) Note(text string) { fmt.Fprintf(p.log, "--- %s\n", text) }

// Start starts a process.
func (p *Program) Start() (*Process, error) {
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env = slices.Concat(os.Environ(), p.env)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: p.namespaces}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	p.Note(fmt.Sprintf("process %d", cmd.Process.Pid))
	now := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		close(now.done)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = now
	return now, nil
}

// MustStart is Start that fails the test.
func (p *Program) MustStart(t testing.TB) *Process {
	t.Helper()
	now, err := p.Start()
	harness.Must(t, err)
	return now
}

// Current returns the process that was started last; nil if there is none.
func (p *Program) Current() *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// End sends a signal to the current process and waits for its end.
func (p *Program) End(s syscall.Signal) {
	now := p.Current()
	if now == nil {
		return
	}
	if now.Running() {
		_ = now.cmd.Process.Signal(s) // it may have ended
	}
	<-now.done
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// State returns how the process ended. It may be called after the end of the process only.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// MustEnv returns an environment variable. The test fails if it is empty, and names the make target
// that sets it.
func MustEnv(t *testing.T, name, target string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("$%s is empty; run 'make %s'", name, target)
	}
	return value
}
