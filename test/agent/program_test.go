package agent

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// program is a command that is started, killed and restarted. The output of all its processes goes
// to one file.
type program struct {
	name string
	args []string
	env  []string
	log  *os.File

	mu      sync.Mutex
	current *process
}

// process is a process of a program.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// newProgram defines a program, which is killed with the test.
func (tb *testbed) newProgram(t *testing.T, name string, env []string, args ...string) *program {
	t.Helper()
	log, err := os.OpenFile(tb.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(t, err)
	p := &program{name: name, args: args, env: env, log: log}
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		log.Close()
	})
	return p
}

// start starts a process.
func (p *program) start() (*process, error) {
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env = slices.Concat(os.Environ(), p.env)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	fmt.Fprintf(p.log, "--- process %d\n", cmd.Process.Pid)
	now := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		close(now.done)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = now
	return now, nil
}

func (p *program) mustStart(t *testing.T) *process {
	t.Helper()
	now, err := p.start()
	must(t, err)
	return now
}

// end sends a signal to the current process and waits for its end.
func (p *program) end(s syscall.Signal) {
	p.mu.Lock()
	now := p.current
	p.mu.Unlock()
	if now == nil {
		return
	}
	if now.running() {
		_ = now.cmd.Process.Signal(s) // it may have ended
	}
	<-now.done
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}
