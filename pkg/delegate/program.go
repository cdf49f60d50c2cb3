package delegate

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/killpoint"
)

// maxStdout bounds a plugin's answer in bytes: a result is some hundred.
const maxStdout = 1 << 20

// program is a plugin process to be run.
type program struct {
	path  string
	stdin []byte
	env   []string
	// files are inherited as descriptors 3 and up.
	files   []*os.File
	timeout time.Duration
	grace   time.Duration
	// works tells that it works on a container ID, and does not only answer a question.
	works bool
}

// ending is how a plugin process ended.
type ending struct {
	state  *os.ProcessState
	stdout []byte
	// stderr is the end of what it wrote there.
	stderr []byte
	// timedOut and tooMuch tell that it was ended by us, and why.
	timedOut bool
	tooMuch  bool
}

// run starts the program in a process group of its own and waits for its end.
// An error means that it did not start. A process that not even SIGKILL ends
// (it hangs inside the kernel) is waited for: it may still allocate.
func (p program) run() (ending, error) {
	stdout, stderr := &bounded{limit: maxStdout}, &tail{limit: maxWords}
	out, err := newCapture(stdout)
	if err != nil {
		return ending{}, err
	}
	errs, err := newCapture(stderr)
	if err != nil {
		out.close()
		return ending{}, err
	}
	p.reach(killpoint.PluginStarting)
	cmd, err := p.start(out.w, errs.w)
	if err != nil {
		out.close()
		errs.close()
		return ending{}, err
	}
	p.reach(killpoint.PluginStarted)
	out.w.Close()
	errs.w.Close()
	end := p.wait(cmd, &watch{pid: cmd.Process.Pid, streams: [2]*capture{out, errs}})
	p.reach(killpoint.PluginEnded)
	// What the pipes still hold is read; failing to read stderr is no failure of the call.
	outErr := out.finish()
	_ = errs.finish()
	end.tooMuch = end.tooMuch || errors.Is(outErr, errTooMuch)
	end.stdout, end.stderr = stdout.kept, stderr.kept
	return end, nil
}

// reach is a kill point of a call that can be lost: a question is asked again.
func (p program) reach(at killpoint.Point) {
	if p.works {
		killpoint.Reach(at)
	}
}

// command returns the process that is to be started.
func (p program) command(stdin, stdout, stderr *os.File) *exec.Cmd {
	return &exec.Cmd{
		Path: p.path, Args: []string{p.path}, Env: p.env,
		Stdin: stdin, Stdout: stdout, Stderr: stderr, ExtraFiles: p.files,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
}

// wait returns when the process has ended and its group has been dealt with.
func (p program) wait(cmd *exec.Cmd, w *watch) ending {
	var end ending
	group := processGroup(w.pid)
	w.over(cmd.Process, func() {
		exited, err := w.until(time.Now().Add(p.timeout))
		end.tooMuch = err != nil
		end.timedOut = !exited && !end.tooMuch
		if end.timedOut || end.tooMuch {
			group.end(p.grace, w)
		}
	})
	// Not before here is the process reaped: until then its number, by which
	// the group is signalled, cannot belong to another process.
	_ = cmd.Wait()
	end.state = cmd.ProcessState
	if end.timedOut || end.tooMuch {
		group.endRest(p.grace)
	}
	return end
}

// memoryFile returns a file that holds data and no disk: a plugin that does not
// read it blocks nobody, as a pipe would.
func memoryFile(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("cni-stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "cni-stdin")
	if _, err := f.WriteAt(data, 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
