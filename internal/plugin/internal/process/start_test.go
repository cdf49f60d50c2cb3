package process

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// Trap: a dynamically linked plugin without its loader is "no such file" although it exists; any
// other reason is distinguished from that one.
func TestStartError(t *testing.T) {
	for name, c := range map[string]struct {
		data string // none: a directory
		mode os.FileMode
		want string
	}{
		"not executable":        {"#!/bin/sh\n", 0o600, "mode 0755"},
		"a directory":           {"", 0o755 | os.ModeDir, "mode 0755"},
		"text":                  {"hello", 0o755, "neither an ELF binary nor a script"},
		"empty":                 {"", 0o755, "expected an executable for "},
		"for another processor": {elfFile(elf.EM_S390, ""), 0o755, "an ELF binary for EM_S390"},
		"without its loader":    {elfFile(hostMachine(), "/no/such/loader.so"), 0o755, `the loader "/no/such/loader.so" that it needs does not`},
		"without a shell":       {"#!/no/such/shell\n", 0o755, `the interpreter that its first line names ("#!/no/such/shell") does not`},
		"missing":               {"", 0, "the plugin does not exist (any more)"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "plugin")
			switch {
			case c.mode.IsDir():
				check.Must(t, os.Mkdir(path, 0o755))
			case c.mode != 0:
				check.Must(t, os.WriteFile(path, []byte(c.data), c.mode))
			}
			if _, err := (Command{Path: path}).Start(nil); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want an error with the path and %q", err, c.want)
			}
		})
	}
}

// hostMachine returns the machine of the test binary.
func hostMachine() elf.Machine {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return elf.EM_NONE
	}
	defer f.Close()
	return f.Machine
}

// elfFile returns the smallest 64-bit executable that names a loader.
func elfFile(machine elf.Machine, loader string) string {
	const headerSize, progSize = 64, 56
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1,
		Phoff: headerSize, Ehsize: headerSize, Phentsize: progSize, Phnum: 1,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	name := append([]byte(loader), 0)
	p := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: headerSize + progSize, Filesz: uint64(len(name)), Memsz: uint64(len(name)), Flags: uint32(elf.PF_R), Align: 1}
	var out bytes.Buffer
	_ = errors.Join(binary.Write(&out, binary.LittleEndian, h), binary.Write(&out, binary.LittleEndian, p)) // a buffer takes everything
	return out.String() + string(name)
}

func TestBusyExecutable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o755)
	check.Must(t, err)
	_, err = f.WriteString("#!/bin/sh\nexit 0\n")
	check.Must(t, err)
	c := Command{Path: path, Timeout: time.Minute}
	if _, err := c.Start(nil); err == nil || !strings.Contains(err.Error(), "text file busy") {
		t.Errorf("got %v, want text file busy", err)
	}
	f.Close()
	if _, r := run(t, c); !r.Exit.Success() {
		t.Errorf("got %s once the file was written, want success", r.Exit)
	}
}
