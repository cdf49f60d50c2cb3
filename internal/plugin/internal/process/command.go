// Package process runs the processes of CNI plugins: it starts them, also ahead of their call,
// bounds their time and output, waits for and reaps them, and holds the lock of the container ID
// that each works on (docs/design/how-it-works.md, Running a plugin). It knows nothing of CNI itself.
package process

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)

// Command is a plugin process to be started.
type Command struct {
	// Path is the executable.
	Path string
	// Env is the complete environment.
	Env []string
	// Files are inherited as descriptors 3 and up.
	Files []*os.File
	// Lock is the lock of the container ID that the process works on. The process inherits it
	// after Files. It is nil for a process that works on none.
	Lock *IDLock
	// Timeout is how long the process may run; Grace is the time from SIGTERM to SIGKILL.
	Timeout, Grace time.Duration
	// Pidfd reports that the process can be waited for by a pidfd (PidfdUsable).
	Pidfd bool
}

// noFD stands for a descriptor that does not exist. poll(2) ignores it.
const noFD = -1

// maxBusyRetry is the longest pause between two attempts to start an executable that is being
// written.
const maxBusyRetry = time.Second

// Start starts the process with a complete standard input, which the process need not read. An
// executable that is being written, as by an installer, is tried again for about a second. An error
// means that the process did not start; it names the executable.
func (c Command) Start(stdin []byte) (*Process, error) {
	fd, err := memoryFile(stdin)
	if err != nil {
		return nil, err
	}
	p, err := c.launch(fd, noFD, maxBusyRetry)
	if err == nil {
		c.reach(failpoint.PluginTold)
	}
	return p, err
}

// Prestart starts the process ahead of its call: it waits for its standard input, which
// SendConfig gives it. Process.Discard ends it otherwise. An executable that is being written is
// not tried again. An error means that the process did not start.
func (c Command) Prestart() (*Process, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	p, err := c.launch(ends[0], ends[1], 0)
	if err != nil {
		_ = unix.Close(ends[1])
	}
	return p, err
}

// launch starts the process in a new process group. It closes stdin, the standard input of the
// process. config is the descriptor that SendConfig writes to.
func (c Command) launch(stdin, config int, maxRetry time.Duration) (*Process, error) {
	defer unix.Close(stdin)
	p := &Process{command: c, config: config}
	var err error
	if p.stdout, err = newPipeReader(boundedBuffer{limit: MaxStdout}); err != nil {
		return nil, err
	}
	if p.stderr, err = newPipeReader(boundedBuffer{limit: MaxStderr, keepTail: true}); err != nil {
		p.stdout.close()
		return nil, err
	}
	c.reach(failpoint.PluginStarting)
	if p.child, err = c.forkRetrying(c.descriptors(stdin, p.stdout.w, p.stderr.w), maxRetry); err != nil {
		p.stdout.close()
		p.stderr.close()
		return nil, err
	}
	c.reach(failpoint.PluginStarted)
	p.stdout.closeWriter()
	p.stderr.closeWriter()
	return p, nil
}

// descriptors returns those of this process that the new one gets as 0, 1, 2 and so on.
func (c Command) descriptors(stdin, stdout, stderr int) []uintptr {
	all := append(make([]uintptr, 0, 5), uintptr(stdin), uintptr(stdout), uintptr(stderr))
	for _, file := range c.Files {
		all = append(all, file.Fd())
	}
	if c.Lock != nil {
		all = append(all, c.Lock.file.Fd())
	}
	return all
}

// forkRetrying forks, and tries an executable that is being written again, with pauses of at most
// maxRetry.
func (c Command) forkRetrying(descriptors []uintptr, maxRetry time.Duration) (child, error) {
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		started, err := c.fork(descriptors)
		if err == nil {
			return started, nil
		}
		if !errors.Is(err, syscall.ETXTBSY) || pause > maxRetry {
			return child{}, explainStartError(c.Path, err)
		}
		<-time.After(pause)
	}
}

// fork starts the process as the leader of a process group. os/exec is not used: it would
// check files and environment that are correct already, and allocate for each. An error names the
// executable.
func (c Command) fork(descriptors []uintptr) (child, error) {
	started := child{pidfd: noFD}
	sys := &syscall.SysProcAttr{Setpgid: true}
	if c.Pidfd {
		sys.PidFD = &started.pidfd
	}
	var err error
	started.pid, err = syscall.ForkExec(c.Path, []string{c.Path}, &syscall.ProcAttr{Env: c.Env, Files: descriptors, Sys: sys})
	if err != nil {
		return child{}, &fs.PathError{Op: "fork/exec", Path: c.Path, Err: err}
	}
	return started, nil
}

// reach is a failpoint of a call on a container ID. Other calls, such as VERSION, change nothing
// and are repeated after a crash.
func (c Command) reach(at failpoint.Point) {
	if c.Lock != nil {
		failpoint.Reach(at)
	}
}

// memoryFile returns the descriptor of a file in memory that holds data. Unlike a pipe it does
// not block the writer when the plugin does not read.
func memoryFile(data []byte) (int, error) {
	fd, err := unix.MemfdCreate("cni-stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return noFD, os.NewSyscallError("memfd_create", err)
	}
	// Pwrite leaves the offset at 0, where the plugin starts to read.
	for at := 0; at < len(data); {
		n, err := unix.Pwrite(fd, data[at:], int64(at))
		if err != nil && !errors.Is(err, unix.EINTR) {
			_ = unix.Close(fd)
			return noFD, os.NewSyscallError("pwrite", err)
		}
		at += max(n, 0)
	}
	return fd, nil
}
