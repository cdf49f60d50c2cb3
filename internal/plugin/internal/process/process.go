// Package process runs the processes of CNI plugins: it starts them, bounds their time
// and output, ends their process group, and holds the lock of the container ID that each works on
// (docs/design/how-it-works.md, Running a plugin). It knows nothing of CNI itself.
package process

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)

const (
	// MaxStdout limits the standard output of a process, in bytes. A CNI result has some hundred.
	MaxStdout = 1 << 20
	// MaxStderr is how many of the last bytes of the standard error are kept.
	MaxStderr = 4 << 10

	// readDelay is how long a process runs before its output is read during the call and not after it,
	// which costs two goroutines. A process that prints more than a pipe holds waits as long.
	readDelay = 20 * time.Millisecond
	// outputDelay is how long the end of the output is waited for after the end of the process, whose
	// descendants may have the pipes, too. All that the process printed is in the pipes by then.
	outputDelay = 500 * time.Millisecond
	// killTimeout is how long the end of a process is waited for after SIGKILL. It takes longer only
	// if the process hangs in the kernel, or may not be signalled.
	killTimeout = 5 * time.Second
	// pollInterval is the interval at which a process group is checked for members.
	pollInterval = 10 * time.Millisecond
	// reapTimeout is how long the end of a process group is waited for after SIGKILL: only one
	// that hangs in the kernel takes longer.
	reapTimeout = time.Second
)

// MaxWait returns how long Process.Wait takes at most with the limits of a Command.
func MaxWait(timeout, grace time.Duration) time.Duration {
	return timeout + 2*grace + killTimeout + reapTimeout
}

// Process is a plugin process that was started. Wait must be called, once.
type Process struct {
	command Command
	cmd     exec.Cmd
	// ended is closed when the process was reaped, or waitErr is why not, and its output was read.
	ended          chan struct{}
	waitErr        error
	stdout, stderr *output
}

// Result is how a process ended and what it printed.
type Result struct {
	// Exit is nil if it is not known: with Unended, or because of Err.
	Exit *os.ProcessState
	// Err is the error of waiting for the process, if Exit is nil.
	Err error
	// Stdout is the standard output, at most MaxStdout bytes; Stderr is the end of the standard
	// error, at most MaxStderr bytes.
	Stdout, Stderr []byte
	// TimedOut and TooMuchOutput report that the process was terminated because it exceeded
	// Command.Timeout or MaxStdout.
	TimedOut, TooMuchOutput bool
	// Unended reports that not even SIGKILL has ended the process: it hangs in the kernel, or it may
	// not be signalled. The process may still do its work. The lock of its container ID stays locked
	// until its end.
	Unended bool
}

// start starts the process with pipes as standard output and error, and the goroutine that reaps it.
func (p *Process) start() error {
	p.command.reach(failpoint.PluginStarting)
	p.cmd.Err = cmp.Or(p.stdout.open(), p.stderr.open()) // Start returns it, and closes the standard input
	p.cmd.Stdout, p.cmd.Stderr = p.stdout.write, p.stderr.write
	err := p.cmd.Start()
	_ = p.stdout.write.Close()
	_ = p.stderr.write.Close()
	if err != nil {
		_ = p.stdout.pipe.Close()
		_ = p.stderr.pipe.Close()
		return explainStartError(p.command.Path, err)
	}
	p.command.reach(failpoint.PluginStarted)
	go p.reap()
	return nil
}

// reap waits for the end of the process and reads its output.
func (p *Process) reap() {
	defer close(p.ended)
	p.waitErr = p.cmd.Wait()
	p.stdout.end()
	p.stderr.end()
}

// pid returns the process ID, which is also the ID of the process group.
func (p *Process) pid() int { return p.cmd.Process.Pid }

// Wait waits until the process has ended, and terminates it and its process group when it exceeds
// a limit. It returns at the latest after Command.Timeout, twice Command.Grace and killTimeout.
func (p *Process) Wait() Result {
	result := p.waitWithinLimits()
	p.command.reach(failpoint.PluginEnded)
	if !result.Unended { // otherwise the output is still being read
		result.Exit, result.Err = p.cmd.ProcessState, p.waitErr
		result.Stdout, result.Stderr = p.stdout.bytes, p.stderr.bytes
	}
	return result
}

func (p *Process) waitWithinLimits() (r Result) {
	timeout := time.NewTimer(p.command.Timeout)
	defer timeout.Stop()
	early := time.AfterFunc(readDelay, func() {
		go p.stderr.read()
		p.stdout.read()
	})
	defer early.Stop()
	select {
	case <-p.ended:
	case <-p.stdout.exceeded:
	case <-timeout.C:
		r.TimedOut = true
	}
	r.TooMuchOutput = isClosed(p.stdout.exceeded)
	r.TimedOut = r.TimedOut && !r.TooMuchOutput
	if !r.TimedOut && !r.TooMuchOutput {
		return r
	}
	if !p.signalAndWait(unix.SIGTERM, p.command.Grace) && !p.signalAndWait(unix.SIGKILL, killTimeout) {
		p.abandon()
		r.Unended = true
		return r
	}
	p.terminateGroup(p.command.Grace)
	return r
}

// signalAndWait sends a signal to the process and its group, which it may have left, and reports
// whether the process ends within the time. A signal that cannot be sent finds no process left, or
// one that may not be signalled. The output is read meanwhile, so that a full pipe blocks no process.
func (p *Process) signalAndWait(sig unix.Signal, within time.Duration) (ended bool) {
	_ = p.signalGroup(sig)
	_ = p.cmd.Process.Signal(sig)
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case <-p.ended:
	case <-limit.C:
	}
	return isClosed(p.ended)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// abandon leaves the lock to a process that could not be ended. It is reaped when it ends.
func (p *Process) abandon() {
	if p.command.Lock != nil {
		p.command.Lock.abandon(p.pid())
	}
}

// LeaveLock leaves the lock of the container ID to the descendants of the process: the outcome of its
// call is unknown, and one that has left its process group may still do its work.
func (p *Process) LeaveLock() {
	if p.command.Lock != nil {
		p.command.Lock.left = true
	}
}

func (p *Process) signalGroup(sig unix.Signal) error { return unix.Kill(-p.pid(), sig) }

// terminateGroup gives the rest of the group, which got SIGTERM with the process, grace before
// SIGKILL. The process must have been reaped: then a member of the group that is a child of ours was
// adopted.
func (p *Process) terminateGroup(grace time.Duration) {
	if p.waitGroupEmpty(grace) {
		return
	}
	_ = p.signalGroup(unix.SIGKILL)
	p.waitGroupEmpty(reapTimeout)
}

// waitGroupEmpty waits until the group has no member, at most for timeout. It reports whether it has
// none. It reaps members that are children of this process: in a container this is process 1, which
// adopts them when their parent has ended. No other process would reap them, and the zombies would
// keep the group.
func (p *Process) waitGroupEmpty(timeout time.Duration) bool {
	for end := time.Now().Add(timeout); ; time.Sleep(pollInterval) {
		for {
			pid, err := unix.Wait4(-p.pid(), nil, unix.WNOHANG, nil)
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if p.signalGroup(0) != nil {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
