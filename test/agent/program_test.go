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

// program is a command that is started, killed and started again. Its output
// of all lives goes to one file.
type program struct {
	name string
	args []string
	env  []string
	log  *os.File

	mu   sync.Mutex
	life *life
}

// life is one run of a program.
type life struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// define names a program; its log is closed with the test.
func (l *lab) define(t *testing.T, name string, env []string, args ...string) *program {
	t.Helper()
	log, err := os.OpenFile(l.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(t, err)
	p := &program{name: name, args: args, env: env, log: log}
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		log.Close()
	})
	return p
}

// start begins a life.
func (p *program) start() (*life, error) {
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env = slices.Concat(os.Environ(), p.env)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	fmt.Fprintf(p.log, "--- process %d\n", cmd.Process.Pid)
	now := &life{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(now.done)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life = now
	return now, nil
}

func (p *program) mustStart(t *testing.T) *life {
	t.Helper()
	now, err := p.start()
	must(t, err)
	return now
}

// end sends a signal and waits for the end of the present life.
func (p *program) end(s syscall.Signal) {
	p.mu.Lock()
	now := p.life
	p.mu.Unlock()
	if now == nil {
		return
	}
	if now.running() {
		_ = now.cmd.Process.Signal(s) // fails only if it has just ended
	}
	<-now.done
}

func (l *life) running() bool {
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}
