package process

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)

// Command is a plugin process to be started.
type Command struct {
	// Path is the executable, Env the complete environment.
	Path string
	Env  []string
	// Lock is the lock of the container ID that the process works on, which it inherits as descriptor
	// 3. It is nil for a process that works on none.
	Lock *IDLock
	// Timeout is how long the process may run; Grace is the time from SIGTERM to SIGKILL.
	Timeout, Grace time.Duration
}

// maxBusyRetry is the longest pause between two attempts to start an executable that is being
// written.
const maxBusyRetry = time.Second

// Start starts the process with a complete standard input, which the process need not read. An
// executable that is being written, as by an installer, is tried again for about a second. An error
// means that the process did not start; it names the executable.
func (c Command) Start(stdin []byte) (*Process, error) {
	file, err := memoryFile(stdin)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		p := c.newProcess(file)
		err := p.start()
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, syscall.ETXTBSY) || pause > maxBusyRetry {
			return nil, err
		}
		<-time.After(pause)
	}
}

func (c Command) newProcess(stdin *os.File) *Process {
	p := &Process{
		command: c, ended: make(chan struct{}),
		stdout: &output{limit: MaxStdout, exceeded: make(chan struct{})}, stderr: &output{limit: MaxStderr},
	}
	p.cmd = exec.Cmd{
		Path: c.Path, Args: []string{c.Path}, Env: c.Env, Stdin: stdin, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if c.Lock != nil {
		p.cmd.ExtraFiles = []*os.File{c.Lock.file}
	}
	return p
}

// reach is a failpoint of a call on a container ID. Other calls, such as VERSION, change nothing
// and are repeated after a crash.
func (c Command) reach(at failpoint.Point) {
	if c.Lock != nil {
		failpoint.Reach(at)
	}
}

// memoryFile returns a file in memory that holds data. Unlike a pipe it is complete if this process
// is killed, and does not wait for a plugin that does not read.
func memoryFile(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("cni-stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "cni-stdin")
	// WriteAt leaves the offset at 0, where the plugin starts to read.
	if _, err := file.WriteAt(data, 0); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// maxShebang is how many bytes of a script's first line the kernel reads (BINPRM_BUF_SIZE).
const maxShebang = 256

// explainStartError adds the remedy to the error of an executable that could not be started. The
// kernel's own text is misleading: a missing loader is "no such file".
func explainStartError(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("%w%s", err, explainMissing(path))
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w; expected an executable for %s/%s, and the file is %s", err, runtime.GOOS, runtime.GOARCH, fileKind(path))
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w; expected an executable file (mode 0755) on a file system without noexec", err)
	default:
		return err
	}
}

func explainMissing(path string) string {
	if _, err := os.Stat(path); err != nil {
		return "; the plugin does not exist (any more): install it, or name its directory with --cni-bin-dir"
	}
	if loader := elfLoader(path); loader != "" {
		return fmt.Sprintf("; the file exists, but the loader %q that it needs does not: install a statically linked build", loader)
	}
	return fmt.Sprintf("; the file exists, but the interpreter that its first line names (%q) does not: install the interpreter, or a plugin that needs none", firstLine(path))
}

// fileKind returns the processor that an ELF binary is built for.
func fileKind(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return "neither an ELF binary nor a script"
	}
	defer f.Close()
	return fmt.Sprintf("an ELF binary for %s (%s)", f.Machine, f.Class)
}

// firstLine returns the beginning of a script's first line.
func firstLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	start, _ := io.ReadAll(io.LimitReader(f, maxShebang))
	line, _, _ := bytes.Cut(start, []byte("\n"))
	return string(line)
}

// elfLoader returns the program interpreter of a dynamically linked binary, empty if it has none.
func elfLoader(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for _, prog := range f.Progs {
		if prog.Type == elf.PT_INTERP {
			name, _ := io.ReadAll(io.LimitReader(prog.Open(), 4<<10))
			return strings.TrimRight(string(name), "\x00")
		}
	}
	return ""
}
