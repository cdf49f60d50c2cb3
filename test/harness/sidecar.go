package harness

import (
	"errors"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// Sidecar is a running "delegated-ipam serve" of a node.
type Sidecar struct {
	Client
	node *Node
	p    *process
}

// Start runs a sidecar on the node and returns when it is ready. Flags are
// added to those that name the node's folders; a repeated flag wins.
//
// When the test ends, a sidecar that still runs must agree with the plugin's
// store address by address (if there is one to compare with), must end with status 0
// on SIGTERM, and must leave on disk what it has said before.
func (n *Node) Start(t testing.TB, flags ...string) *Sidecar {
	t.Helper()
	s := n.Launch(t, flags...)
	s.WaitReady(t)
	t.Cleanup(func() {
		if !t.Failed() && s.p.running() {
			if n.Store != nil {
				s.Agree(t)
			}
			s.stopWithItsWord(t)
		}
	})
	return s
}

// Launch runs a sidecar on the node and does not wait for it.
func (n *Node) Launch(t testing.TB, flags ...string) *Sidecar {
	t.Helper()
	s := &Sidecar{Client: n.Client(), node: n, p: n.startProcess(t, n.ServeArgs(flags...))}
	t.Cleanup(func() { s.end(t) })
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
	return append(args, flags...)
}

// WaitReady waits until the sidecar says that it is ready. It fails the test
// when the process ends before.
func (s *Sidecar) WaitReady(t testing.TB) {
	t.Helper()
	s.waitFor(t, "the sidecar to be ready", s.Ready)
}

// WaitServing waits until the sidecar answers on its socket, ready or not.
func (s *Sidecar) WaitServing(t testing.TB) {
	t.Helper()
	s.waitFor(t, "the sidecar to answer", func() error {
		_, err := s.Try("GET", "/v1/healthz")
		return err
	})
}

func (s *Sidecar) waitFor(t testing.TB, what string, ask func() error) {
	t.Helper()
	Eventually(t, what, func() error {
		if !s.p.running() {
			t.Fatalf("the sidecar ended with status %d; its output:\n%s", s.p.wait(t), s.p.out)
		}
		return ask()
	})
}

// Agree waits until the plugin's store and the sidecar's list hold exactly the
// same addresses, and every invariant holds of what the node's clients were told
// (Client.Do), which work in the background may still bring about.
func (s *Sidecar) Agree(t testing.TB) {
	t.Helper()
	Eventually(t, "the plugin's store, the list and what was answered to agree", func() error {
		stored, err := s.node.Store()
		if err != nil {
			return err
		}
		list := s.List(t)
		errs := []error{oracle.Compare(stored, Leases(list))}
		for _, v := range s.node.answers.soFar().Judge(oracle.Final{Stored: stored, Listed: HeldOf(list)}) {
			errs = append(errs, v)
		}
		return errors.Join(errs...)
	})
}

// stopWithItsWord stops the sidecar. Its journal must agree with its list while it
// runs, and with the last one of them when it has ended.
func (s *Sidecar) stopWithItsWord(t testing.TB) {
	t.Helper()
	var last []Attachment
	Eventually(t, "the journal and the list to agree", func() error {
		last = s.List(t)
		onDisk, err := oracle.Journal(s.node.StateDir)
		return errors.Join(err, oracle.SameKept(onDisk, keptBy(last)))
	})
	s.Stop(t)
	s.node.JournalIs(t, last)
}

// Stop ends the sidecar with SIGTERM and expects exit status 0.
func (s *Sidecar) Stop(t testing.TB) {
	t.Helper()
	s.p.signal(t, syscall.SIGTERM)
	if code := s.p.wait(t); code != 0 {
		t.Errorf("after SIGTERM the sidecar ended with status %d; want 0; its output:\n%s", code, s.p.out)
	}
}

// Kill ends the sidecar with SIGKILL.
func (s *Sidecar) Kill(t testing.TB) {
	t.Helper()
	s.p.signal(t, syscall.SIGKILL)
	s.p.wait(t)
}

// Wait returns the exit status of a sidecar that ends by itself.
func (s *Sidecar) Wait(t testing.TB) int {
	t.Helper()
	return s.p.wait(t)
}

// Running tells whether the process has not ended yet.
func (s *Sidecar) Running() bool { return s.p.running() }

// PID returns the process ID.
func (s *Sidecar) PID() int { return s.p.cmd.Process.Pid }

// Log returns what the process has written so far.
func (s *Sidecar) Log() string { return s.p.out.String() }

// end leaves no process behind and shows the log of a test that failed.
func (s *Sidecar) end(t testing.TB) {
	if s.p.running() {
		s.p.signal(t, syscall.SIGTERM)
		s.p.wait(t)
	}
	if s.p.raced() {
		t.Errorf("the race detector found something; output of process %d:\n%s", s.PID(), s.p.out)
	} else if t.Failed() {
		t.Logf("output of process %d:\n%s", s.PID(), s.p.out)
	}
}
