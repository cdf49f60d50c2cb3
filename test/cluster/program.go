package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
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

// Process is a process of a program. State is how it ended, after its end.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// NewProgram defines a program, which is killed with the test. Its output is appended to NAME.log
// in dir; env holds NAME=value settings that are added to the environment of the test.
func NewProgram(t testing.TB, dir, name string, env []string, args ...string) *Program {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check.Must(t, err)
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

func (p *Program) Name() string { return p.name }

// Note writes a line of the test into the log.
func (p *Program) Note(text string) { fmt.Fprintf(p.log, "--- %s\n", text) }

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

func (p *Program) MustStart(t testing.TB) *Process {
	t.Helper()
	now, err := p.Start()
	check.Must(t, err)
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

func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *Process) PID() int { return p.cmd.Process.Pid }

func (p *Process) Done() <-chan struct{} { return p.done }

func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Run runs a command and returns its output, which the error has too.
func Run(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out), err
}

func RunLines(t testing.TB, lines ...string) {
	t.Helper()
	for _, line := range lines {
		check.Must(t, RunLine(line))
	}
}

// RunLine runs a command whose arguments have no spaces.
func RunLine(line string) error {
	words := strings.Fields(line)
	_, err := Run(exec.Command(words[0], words[1:]...))
	return err
}

// MustEnv returns an environment variable, which a make target sets.
func MustEnv(t testing.TB, name, target string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("$%s is empty; run 'make %s'", name, target)
	}
	return value
}

// Eventually calls check until it returns nil, and returns its last error after the limit. The
// limit must be long enough for a busy machine.
func Eventually(ctx context.Context, limit time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		if Sleep(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("gave up after %s: %w", limit, err)
		}
	}
}

// Sleep waits, and fails if ctx ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// MustEventually is Eventually that fails the test; what names the awaited condition.
func MustEventually(t testing.TB, what string, limit time.Duration, check func() error) {
	t.Helper()
	if err := Eventually(t.Context(), limit, check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Record logs a measurement, and appends it to a table, which the run.sh of a test prints at the end.
func Record(t testing.TB, table, what string, value any) {
	t.Helper()
	if d, ok := value.(time.Duration); ok {
		value = d.Round(10 * time.Millisecond)
	}
	t.Logf("%s: %v", what, value)
	f, err := os.OpenFile(table, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check.Must(t, err)
	defer f.Close()
	_, err = fmt.Fprintf(f, "| `%s` | %s | %v |\n", t.Name(), what, value)
	check.Must(t, err)
}

func MedianAndMax(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	s := slices.Sorted(slices.Values(all))
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	return fmt.Sprintf("%s median, %s at most", round(s[len(s)/2]), round(s[len(s)-1]))
}

// HostLocal returns the addresses in host-local's lease files. A killed host-local may leave an empty file
// until its owner allocates again.
func HostLocal(dir string) (map[netip.Addr]bool, error) {
	leases, _, err := oracle.HostLocalAfterKill(dir)
	held := map[netip.Addr]bool{}
	for _, lease := range leases {
		held[lease.IP] = true
	}
	return held, err
}
