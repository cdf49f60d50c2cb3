package e2e

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func removeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// changeProcessor changes a binary into one for a mainframe.
func changeProcessor(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// e_machine follows e_ident and e_type (elf(5)).
	binary.LittleEndian.PutUint16(data[elf.EI_NIDENT+2:], uint16(elf.EM_S390))
	harness.WriteProgram(t, path, data)
}

// replaceLoader replaces a plugin by a dynamically linked program of this machine whose
// loader does not exist, as in an image without libc.
func replaceLoader(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	loader := interpreter(t, data)
	if loader == "" {
		harness.Skipf(t, "/bin/sh is not dynamically linked here")
	}
	data = bytes.ReplaceAll(data, []byte(loader), []byte("/x"+strings.Repeat("x", len(loader)-2)))
	removeFile(t, path)
	harness.WriteProgram(t, path, data)
}

// interpreter returns the loader that a binary names; empty if it names none.
func interpreter(t *testing.T, data []byte) string {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, p.Filesz)
			if _, err := p.ReadAt(name, 0); err != nil {
				t.Fatal(err)
			}
			return strings.TrimRight(string(name), "\x00")
		}
	}
	return ""
}
