package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// Daemon is a running "delegated-ipam serve" of a node.
type Daemon struct {
	Client
	node *Node
	p    *process
}

// Start runs a daemon on the node and returns when it is ready. Flags are added to
// ServeArgs and override them.
//
// When the test ends and the daemon still runs, its list must equal the plugin's store (unless
// Node.Store is nil), SIGTERM must end it with status 0, and the journal must then equal its last list.
func (n *Node) Start(t testing.TB, flags ...string) *Daemon {
	t.Helper()
	s := n.Launch(t, flags...)
	s.WaitReady(t)
	t.Cleanup(func() {
		if !t.Failed() && s.p.running() {
			if n.Store != nil {
				s.WaitConsistent(t)
			}
			s.stopAndCompareJournal(t)
		}
	})
	return s
}

// Launch runs a daemon on the node without waiting for it.
func (n *Node) Launch(t testing.TB, flags ...string) *Daemon {
	t.Helper()
	s := &Daemon{Client: n.Client(), node: n, p: n.startProcess(t, n.ServeArgs(flags...))}
	t.Cleanup(func() { s.cleanUp(t) })
	return s
}

// ServeArgs returns the arguments with which Start runs the binary.
func (n *Node) ServeArgs(flags ...string) []string {
	args := append([]string{
		"serve",
		"--socket-path=" + n.Socket,
		"--state-dir=" + n.StateDir,
		"--cni-conf-dir=" + n.ConfDir,
		"--cni-bin-dir=" + n.BinDir,
		"--node-name=" + n.Name,
		"--local-router-ipv4=10.15.0.1",
		"--local-router-ipv6=fd00:15::1",
		"--log-level=debug",
	}, n.Flags...)
	args = slices.DeleteFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.Contains(n.Without, name)
	})
	return append(args, flags...)
}

// WaitReady waits until the daemon is ready, and fails the test if the process ends.
func (s *Daemon) WaitReady(t testing.TB) {
	t.Helper()
	s.waitWhileRunning(t, "the daemon to be ready", s.Ready)
}

// WaitServing waits until the daemon responds on its socket, ready or not.
func (s *Daemon) WaitServing(t testing.TB) {
	t.Helper()
	s.waitWhileRunning(t, "the daemon to respond", func() error {
		_, err := s.Try("GET", "/v1/healthz")
		return err
	})
}

func (s *Daemon) waitWhileRunning(t testing.TB, what string, check func() error) {
	t.Helper()
	Eventually(t, what, func() error {
		if !s.p.running() {
			t.Fatalf("the daemon ended with status %d; its output:\n%s", s.p.wait(t), s.p.out)
		}
		return check()
	})
}

// WaitConsistent waits until the plugin's store and the daemon's list have the same
// addresses, and every invariant holds for the responses to the node's clients (Client.Do);
// background work may still change both.
func (s *Daemon) WaitConsistent(t testing.TB) {
	t.Helper()
	Eventually(t, "the plugin's store, the list and the responses to be consistent", func() error {
		stored, err := s.node.Store()
		if err != nil {
			return err
		}
		list := s.List(t)
		errs := []error{oracle.Compare(stored, Leases(list))}
		for _, v := range s.node.history.current.Load().Check(oracle.Snapshot{Stored: stored, Listed: Held(list)}) {
			errs = append(errs, v)
		}
		return errors.Join(errs...)
	})
}

// stopAndCompareJournal stops the daemon. Its journal must equal its list while it runs, and
// its last list after it has stopped.
func (s *Daemon) stopAndCompareJournal(t testing.TB) {
	t.Helper()
	var last []Attachment
	Eventually(t, "the journal and the list to be equal", func() error {
		last = s.List(t)
		onDisk, err := oracle.Journal(s.node.StateDir)
		return errors.Join(err, oracle.CompareAttachments(onDisk, KeptRecords(last)))
	})
	s.Stop(t)
	s.node.WantJournal(t, last)
}

// Stop ends the daemon with SIGTERM and expects exit status 0.
func (s *Daemon) Stop(t testing.TB) {
	t.Helper()
	s.p.signal(t, syscall.SIGTERM)
	if code := s.p.wait(t); code != 0 {
		t.Errorf("after SIGTERM the daemon ended with status %d; want 0; its output:\n%s", code, s.p.out)
	}
}

// Signal sends a signal to the daemon.
func (s *Daemon) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	s.p.signal(t, sig)
}

// Kill ends the daemon with SIGKILL, unless a failpoint has. One that has ended in another way is an error.
func (s *Daemon) Kill(t testing.TB) {
	t.Helper()
	_ = s.p.cmd.Process.Kill()
	if code := s.p.wait(t); code != -1 {
		t.Fatalf("the daemon ended with status %d before it was killed; its output:\n%s", code, s.p.out)
	}
}

// Wait waits until the daemon has ended and returns its exit status.
func (s *Daemon) Wait(t testing.TB) int {
	t.Helper()
	return s.p.wait(t)
}

// WantStartFailure waits until the daemon ends with a failure and has logged each text.
func (s *Daemon) WantStartFailure(t testing.TB, texts ...string) {
	t.Helper()
	if code := s.Wait(t); code == 0 {
		t.Errorf("the daemon ended with status 0; want a failure:\n%s", s.Log())
	}
	for _, text := range texts {
		if !strings.Contains(s.Log(), text) {
			t.Errorf("the log lacks %q:\n%s", text, s.Log())
		}
	}
}

// Running reports whether the process has not ended yet.
func (s *Daemon) Running() bool { return s.p.running() }

// PID returns the process ID.
func (s *Daemon) PID() int { return s.p.cmd.Process.Pid }

// Log returns the output of the process so far.
func (s *Daemon) Log() string { return s.p.out.String() }

// WaitLog waits until one line of the log has every text.
func (s *Daemon) WaitLog(t testing.TB, texts ...string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("a log line with %q", texts), func() error {
		for line := range strings.Lines(s.Log()) {
			lacks := func(text string) bool { return !strings.Contains(line, text) }
			if !slices.ContainsFunc(texts, lacks) {
				return nil
			}
		}
		return errors.New(s.Log())
	})
}

// cleanUp stops the process and logs its output if the test failed.
func (s *Daemon) cleanUp(t testing.TB) {
	if s.p.running() {
		s.p.signal(t, syscall.SIGTERM)
		s.p.wait(t)
	}
	if s.p.hasDataRace() {
		t.Errorf("data race; output of process %d:\n%s", s.PID(), s.p.out)
	} else if t.Failed() {
		t.Logf("output of process %d:\n%s", s.PID(), s.p.out)
	}
}

// CommandResult is the exit status and the output of a command.
type CommandResult struct {
	ExitCode       int
	Stdout, Stderr string
}

// Command runs the binary with arguments against the node's socket, which CILIUM_SOCK names.
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
	cmd.Env = append(n.Environment(), "CILIUM_SOCK="+n.Socket)
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
