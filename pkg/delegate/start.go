package delegate

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"
)

// maxFirstLine is as much of a script's first line as the kernel looks at, in bytes
// (BINPRM_BUF_SIZE).
const maxFirstLine = 256

// start starts the program. A binary that is just being written (an installer
// that copies it) is tried again for a second; one that is to stand by is not worth it.
func (p program) start(stdin int, stdout, stderr *capture) (process, error) {
	descriptors := append(make([]uintptr, 0, 4), uintptr(stdin), uintptr(stdout.w), uintptr(stderr.w))
	for _, file := range p.files {
		descriptors = append(descriptors, file.Fd())
	}
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		child, err := p.fork(descriptors)
		if err == nil {
			return child, nil
		}
		if !errors.Is(err, syscall.ETXTBSY) || p.standsBy || pause > time.Second {
			return process{}, explain(p.path, err)
		}
		<-time.After(pause)
	}
}

// explain says what to do about a plugin that could not be started. The
// kernel's own words mislead: a missing loader is "no such file".
func explain(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("%w%s", err, missing(path))
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w; expected an executable for %s/%s, and the file is %s", err, runtime.GOOS, runtime.GOARCH, kind(path))
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w; expected an executable file (mode 0755) on a file system without noexec", err)
	default:
		return err
	}
}

func missing(path string) string {
	if _, err := os.Stat(path); err != nil {
		return "; the plugin is not there (any more): install it, or name its folder with --cni-bin-dir"
	}
	if loader := elfLoader(path); loader != "" {
		return fmt.Sprintf("; the file is there, but the loader %s that it needs is not: install a statically linked build", loader)
	}
	return fmt.Sprintf("; the file is there, but the interpreter that its first line names (%q) is not: install that, or a plugin that needs none", firstLine(path))
}

// kind says for which processor a binary is, or that it is none.
func kind(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return "no ELF binary and no script"
	}
	defer f.Close()
	return fmt.Sprintf("an ELF binary for %s (%s)", f.Machine, f.Class)
}

// firstLine is the beginning of a script's first line, printable.
func firstLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	start := make([]byte, maxFirstLine)
	n, err := io.ReadFull(f, start)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ""
	}
	line, _, _ := bytes.Cut(start[:n], []byte("\n"))
	return printable(line)
}

// elfLoader returns the program interpreter of a dynamically linked binary,
// empty if it names none.
func elfLoader(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for _, prog := range f.Progs {
		if prog.Type != elf.PT_INTERP || prog.Filesz > 4<<10 {
			continue
		}
		name := make([]byte, prog.Filesz)
		if _, err := prog.ReadAt(name, 0); err != nil {
			return ""
		}
		return printable(name)
	}
	return ""
}
