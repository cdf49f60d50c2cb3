package delegate

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
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
	// handles tells that processes have handles that can be waited for.
	handles bool
	// works tells that it works on a container ID, and does not only answer a question.
	works bool
	// standsBy tells that it is started without stdin, which it gets later.
	standsBy bool
}

// ending is how a plugin process ended.
type ending struct {
	exit   exit
	stdout []byte
	// stderr is the end of what it wrote there.
	stderr []byte
	// timedOut and tooMuch tell that it was ended by us, and why.
	timedOut bool
	tooMuch  bool
	// unknown is why it cannot be told how it ended.
	unknown error
}

// launched is a plugin process that has been started.
type launched struct {
	program
	child process
	// out and errs are what it prints.
	out, errs *capture
	// input is where its configuration goes; none if it has it already.
	input int
}

// launch starts the program in a process group of its own. An error means that it
// did not start.
func (p program) launch() (launched, error) {
	out, err := newCapture(kept{limit: maxStdout})
	if err != nil {
		return launched{}, err
	}
	errs, err := newCapture(kept{limit: maxWords, last: true})
	if err != nil {
		out.close()
		return launched{}, err
	}
	stdin, input, err := p.openInput()
	if err != nil {
		out.close()
		errs.close()
		return launched{}, err
	}
	p.reach(failpoint.PluginStarting)
	child, err := p.start(stdin, out, errs)
	_ = unix.Close(stdin)
	if err != nil {
		if input != none {
			_ = unix.Close(input)
		}
		out.close()
		errs.close()
		return launched{}, err
	}
	p.reach(failpoint.PluginStarted)
	out.handOver()
	errs.handOver()
	return launched{program: p, child: child, out: out, errs: errs, input: input}, nil
}

// openInput returns what the plugin reads, and where its configuration goes when it
// is told later.
func (p program) openInput() (stdin, input int, err error) {
	if !p.standsBy {
		stdin, err = memoryFile(p.stdin)
		return stdin, none, err
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return none, none, os.NewSyscallError("pipe2", err)
	}
	return ends[0], ends[1], nil
}

// finish waits for the end of the process. One that not even SIGKILL ends (it hangs
// inside the kernel) is waited for: it may still allocate.
func (l launched) finish() ending {
	end := l.wait(&watch{process: l.child, streams: [2]*capture{l.out, l.errs}})
	l.reach(failpoint.PluginEnded)
	// What the pipes still hold is read; failing to read stderr is no failure of the call.
	outErr := l.out.finish()
	_ = l.errs.finish()
	end.tooMuch = end.tooMuch || errors.Is(outErr, errTooMuch)
	end.stdout, end.stderr = l.out.bytes, l.errs.bytes
	return end
}

// reach is a failpoint of a call that can be lost: a question is asked again.
func (p program) reach(at failpoint.Point) {
	if p.works {
		failpoint.Reach(at)
	}
}

// wait returns when the process has ended and its group has been dealt with.
func (p program) wait(w *watch) ending {
	var end ending
	group := processGroup(w.pid)
	exited, err := w.until(time.Now().Add(p.timeout))
	end.tooMuch = err != nil
	end.timedOut = !exited && !end.tooMuch
	if end.timedOut || end.tooMuch {
		group.end(p.grace, w)
	}
	// Not before here is the process reaped: until then its number, by which
	// the group is signalled, cannot belong to another process.
	end.exit, end.unknown = w.reap()
	if end.timedOut || end.tooMuch {
		group.endRest(p.grace)
	}
	return end
}

// memoryFile returns the descriptor of a file that holds data and no disk: a plugin
// that does not read it blocks nobody, as a pipe would.
func memoryFile(data []byte) (int, error) {
	fd, err := unix.MemfdCreate("cni-stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return none, os.NewSyscallError("memfd_create", err)
	}
	// Written so, it is still read from its beginning.
	for at := 0; at < len(data); {
		n, err := unix.Pwrite(fd, data[at:], int64(at))
		if err != nil && !errors.Is(err, unix.EINTR) {
			_ = unix.Close(fd)
			return none, os.NewSyscallError("pwrite", err)
		}
		at += max(n, 0)
	}
	return fd, nil
}
