package delegate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is a plugin process from its start until it is reaped.
type process struct {
	pid int
	// handle is readable once it has ended (pidfd_open(2)); none where there are no
	// such descriptors, or none that can be waited for.
	handle int
}

// none is the place of a descriptor that is not there. poll(2) passes over it.
const none = -1

// handlesWork tells whether a process has a handle that can be waited for: there
// are some since Linux 5.2, and poll(2) knows of them since 5.3, as does
// pidfd_open(2). A filter of system calls may refuse them.
func handlesWork() bool {
	handle, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	return unix.Close(handle) == nil
}

// fork starts the program as the leader of a process group, with the descriptors
// that are its 0, 1, 2 and so on. os/exec would bring files and an environment into
// order that are so already, and keep objects for each. An error names the program.
func (p program) fork(descriptors []uintptr) (process, error) {
	child := process{handle: none}
	sys := &syscall.SysProcAttr{Setpgid: true}
	if p.handles {
		sys.PidFD = &child.handle
	}
	var err error
	child.pid, err = syscall.ForkExec(p.path, []string{p.path}, &syscall.ProcAttr{Env: p.env, Files: descriptors, Sys: sys})
	if err != nil {
		return process{}, &fs.PathError{Op: "fork/exec", Path: p.path, Err: err}
	}
	return child, nil
}

// reap waits for the end of the process and returns how it ended. From then on its
// number may be another's. An error means that it cannot be told.
func (c process) reap() (exit, error) {
	if c.handle != none {
		defer unix.Close(c.handle)
	}
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(c.pid, &status, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			return exit{status}, os.NewSyscallError("wait4", err)
		}
	}
}

// exit is how a process ended.
type exit struct{ unix.WaitStatus }

// success tells whether it ended by itself, with exit status 0.
func (e exit) success() bool { return e.Exited() && e.ExitStatus() == 0 }

func (e exit) String() string {
	if e.Exited() {
		return fmt.Sprintf("exit status %d", e.ExitStatus())
	}
	text := fmt.Sprintf("signal: %s", e.Signal())
	if e.CoreDump() {
		text += " (core dumped)"
	}
	return text
}
