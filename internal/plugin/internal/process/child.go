package process

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// child is a child process from its start until it is reaped.
type child struct {
	pid int
	// pidfd becomes readable when the process ends (pidfd_open(2)); noFD where that does not work.
	pidfd int
}

// PidfdUsable reports whether processes can be waited for by a pidfd: pidfds exist since Linux
// 5.2, and poll(2) supports them since 5.3, as does pidfd_open(2). A seccomp filter may refuse
// them.
func PidfdUsable() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

// hasEnded reports whether the process has ended. It does not wait, and does not reap it.
func (c child) hasEnded() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, c.pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}

// signal sends a signal to the process itself. It must not have been reaped.
func (c child) signal(sig unix.Signal) error {
	if c.pidfd != noFD {
		return unix.PidfdSendSignal(c.pidfd, sig, nil, 0)
	}
	return unix.Kill(c.pid, sig)
}

// reap waits for the end of the process and returns its exit status. From then on its ID may
// belong to another process. An error means that the exit status is unknown.
func (c child) reap() (ExitStatus, error) {
	if c.pidfd != noFD {
		defer unix.Close(c.pidfd)
	}
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(c.pid, &status, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			return ExitStatus{status}, os.NewSyscallError("wait4", err)
		}
	}
}

// ExitStatus is how a process ended.
type ExitStatus struct{ unix.WaitStatus }

// Success reports whether the process exited with status 0.
func (s ExitStatus) Success() bool { return s.Exited() && s.ExitStatus() == 0 }

// String returns a text such as "exit status 1" or "signal: killed", as os.ProcessState does.
func (s ExitStatus) String() string {
	if s.Exited() {
		return fmt.Sprintf("exit status %d", s.ExitStatus())
	}
	text := fmt.Sprintf("signal: %s", s.Signal())
	if s.CoreDump() {
		text += " (core dumped)"
	}
	return text
}
