package process

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
)

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
