package process

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)

const (
	// MaxStdout limits the standard output of a process, in bytes. A CNI result has some hundred.
	MaxStdout = 1 << 20
	// MaxStderr is how many of the last bytes of the standard error are kept.
	MaxStderr = 4 << 10
	// MaxConfig is the longest configuration for a prestarted process, in bytes: as much as a pipe
	// always takes in one write (pipe(7), PIPE_BUF).
	MaxConfig = 4 << 10

	// killTimeout is how long the end of a process is waited for after SIGKILL. It takes longer only
	// if the process hangs in the kernel, or may not be signalled.
	killTimeout = 5 * time.Second
)

// MaxWait returns how long Process.Wait takes at most with the limits of a Command.
func MaxWait(timeout, grace time.Duration) time.Duration { return timeout + 2*grace + killTimeout }

// Process is a plugin process that was started. Either Wait or Discard must be called, once.
type Process struct {
	command Command
	child   child
	// The readers are values, because a call should make few heap allocations.
	stdout, stderr pipeReader
	// config is the descriptor that the configuration of a prestarted process is written to;
	// noFD once it has one.
	config int
}

// Result is how a process ended and what it printed.
type Result struct {
	Exit ExitStatus
	// Stdout is the standard output, at most MaxStdout bytes; Stderr is the end of the standard
	// error, at most MaxStderr bytes.
	Stdout, Stderr []byte
	// TimedOut and TooMuchOutput report that the process was terminated because it exceeded
	// Command.Timeout or MaxStdout.
	TimedOut, TooMuchOutput bool
	// Unended reports that not even SIGKILL has ended the process: it hangs in the kernel, or it may
	// not be signalled. Exit is not known then, and the process may still do its work. The lock of its
	// container ID stays locked until its end.
	Unended bool
	// Err is why Exit is unknown; nil if it is known.
	Err error
}

// PID returns the process ID, which is also that of the process group.
func (p *Process) PID() int { return p.child.pid }

// RunsLike reports whether the process was started with the executable and environment of c.
func (p *Process) RunsLike(c Command) bool {
	return p.command.Path == c.Path && slices.Equal(p.command.Env, c.Env)
}

// SendConfig gives a prestarted process its standard input. It reports whether the process was
// alive and got the whole of it; after false only Discard may be called.
func (p *Process) SendConfig(config []byte) bool {
	if len(config) > MaxConfig || p.child.hasEnded() {
		return false
	}
	p.command.reach(failpoint.PluginTelling)
	sent := writeConfig(p.config, config)
	if sent { // otherwise the pipe stays open: its end would make the part pass for the whole
		_ = unix.Close(p.config)
		p.config = noFD
	}
	p.command.reach(failpoint.PluginTold)
	return sent
}

// writeConfig writes to a pipe, and reports whether all of config was written.
func writeConfig(fd int, config []byte) bool {
	n, err := unix.Write(fd, config)
	return err == nil && n == len(config)
}

// Wait waits until the process has ended, and terminates it and its process group when it exceeds
// a limit. It returns at the latest after Command.Timeout, twice Command.Grace and killTimeout.
func (p *Process) Wait() Result {
	result := p.waitExit()
	p.command.reach(failpoint.PluginEnded)
	// Failing to read stderr is not a failure of the call.
	err := p.stdout.drain()
	_ = p.stderr.drain()
	result.TooMuchOutput = result.TooMuchOutput || errors.Is(err, errTooMuchOutput)
	result.Stdout, result.Stderr = p.stdout.bytes, p.stderr.bytes
	return result
}

// waitExit returns after the process has been reaped and its group terminated where a limit was
// exceeded.
func (p *Process) waitExit() Result {
	var result Result
	poll, group := p.poller(), processGroup(p.child.pid)
	ended, err := poll.waitUntil(time.Now().Add(p.command.Timeout))
	result.TooMuchOutput = err != nil
	result.TimedOut = !ended && !result.TooMuchOutput
	overLimit := result.TimedOut || result.TooMuchOutput
	if overLimit && !p.terminate(poll, p.command.Grace) {
		result.Unended = true
		p.abandon()
		return result
	}
	// The process is not reaped before here: until then its ID, by which the group is signalled,
	// cannot belong to another process.
	result.Exit, result.Err = p.child.reap()
	if overLimit {
		group.terminateRest(p.command.Grace)
	}
	return result
}

// terminate sends SIGTERM, and after grace SIGKILL. It reports whether the process has ended, at the
// latest after grace and killTimeout.
func (p *Process) terminate(poll *poller, grace time.Duration) (ended bool) {
	return p.signalAndWait(poll, unix.SIGTERM, grace) || p.signalAndWait(poll, unix.SIGKILL, killTimeout)
}

// signalAndWait sends a signal to the process and its group, which it may have left, and reports
// whether the process ends within the time. A signal that cannot be sent finds no process left, or
// one that may not be signalled. The output is read meanwhile, so that a full pipe blocks no process.
func (p *Process) signalAndWait(poll *poller, sig unix.Signal, within time.Duration) (ended bool) {
	_ = processGroup(p.child.pid).signal(sig)
	_ = p.child.signal(sig)
	deadline := time.Now().Add(within)
	ended, err := poll.waitUntil(deadline)
	for ; err != nil; ended, err = poll.waitUntil(deadline) { // a stream over its limit is closed
	}
	return ended
}

// abandon stops waiting for a process that could not be ended. It is reaped when it ends, and keeps its lock
// until then.
func (p *Process) abandon() {
	if p.command.Lock != nil {
		p.command.Lock.abandon(p.child.pid)
	}
	go func() { _, _ = p.child.reap() }()
}

// LeaveLock leaves the lock of the container ID to the descendants of the process: the outcome of its
// call is unknown, and one that has left its process group may still do its work.
func (p *Process) LeaveLock() {
	if p.command.Lock != nil {
		p.command.Lock.left = true
	}
}

// Discard kills a prestarted process that got no configuration, and so has done nothing.
func (p *Process) Discard() {
	if p.signalAndWait(p.poller(), unix.SIGKILL, killTimeout) {
		_, _ = p.child.reap()
		processGroup(p.child.pid).waitEmpty(reapTimeout) // a script may have children
	} else {
		p.abandon()
	}
	_ = unix.Close(p.config)
	p.stdout.closeReader()
	p.stderr.closeReader()
}

func (p *Process) poller() *poller {
	return &poller{child: p.child, streams: [2]*pipeReader{&p.stdout, &p.stderr}}
}
