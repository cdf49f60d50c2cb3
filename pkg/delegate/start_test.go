package delegate

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// Trap: a dynamically linked plugin without its loader is "no such file" although it is
// there; every other reason is told apart from that one.
func TestAPluginThatCannotBeStartedIsExplained(t *testing.T) {
	write := func(data string, mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(data), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		install func(*testing.T, string)
		text    string
	}{
		"it is missing":                            {func(*testing.T, string) {}, "does not exist any more: failed to find plugin \"nowhere\""},
		"it is not executable":                     {write("#!/bin/sh\n", 0o600), "mode 0755"},
		"it is a folder":                           {func(t *testing.T, path string) { mkdir(t, path) }, "mode 0755"},
		"it is no executable":                      {write("hello", 0o755), "expected an executable for "},
		"it is empty":                              {write("", 0o755), "expected an executable for "},
		"it is built for another machine":          {write(elfFile(elf.EM_S390, ""), 0o755), "expected an executable for "},
		"its loader is missing":                    {write(elfFile(hostMachine(), "/no/such/loader.so"), 0o755), "the loader /no/such/loader.so that it needs is not"},
		"the interpreter of the script is missing": {write("#!/no/such/shell\n", 0o755), `the interpreter that its first line names ("#!/no/such/shell") is not`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			target := b.call("id")
			target.Invocation.Plugin, target.Invocation.Binary = "nowhere", filepath.Join(t.TempDir(), "plugin")
			c.install(t, target.Invocation.Binary)
			for _, verb := range []string{call.VerbAdd, call.VerbDel, call.VerbCheck, call.VerbStatus} {
				wantError(t, b.run(verb, target), call.NotStarted, c.text)
			}
		})
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// hostMachine is the machine of the test binary itself.
func hostMachine() elf.Machine {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return elf.EM_NONE
	}
	defer f.Close()
	return f.Machine
}

// elfFile is the smallest 64-bit executable that names a loader.
func elfFile(machine elf.Machine, loader string) string {
	const headerSize, progSize = 64, 56
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1,
		Phoff: headerSize, Ehsize: headerSize, Phentsize: progSize, Phnum: 1,
	}
	order := binary.ByteOrder(binary.LittleEndian)
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	name := append([]byte(loader), 0)
	p := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: headerSize + progSize, Filesz: uint64(len(name)), Memsz: uint64(len(name)), Flags: uint32(elf.PF_R), Align: 1}
	out, err := binary.Append(nil, order, h)
	if err != nil {
		return ""
	}
	if out, err = binary.Append(out, order, p); err != nil {
		return ""
	}
	return string(append(out, name...))
}

func TestAPluginThatIsBeingWrittenIsTriedAgain(t *testing.T) {
	b := newBench(t)
	target := b.call("id")
	target.Invocation.Binary = filepath.Join(t.TempDir(), "plugin")
	f, err := os.OpenFile(target.Invocation.Binary, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("#!/bin/sh\nexit 0\n"); err != nil {
		t.Fatal(err)
	}
	wantError(t, b.run(call.VerbDel, target), call.NotStarted, "text file busy")
	f.Close()
	if err := b.run(call.VerbDel, target); err != nil {
		t.Errorf("got %v once the file was written, want success", err)
	}
}
