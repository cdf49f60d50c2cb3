package delegate

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// Executable returns the path of the executable that calls with a recorded context use:
// the recorded one, or, where that does not exist any more, that of the plugin's type in
// today's folders. The error says what to do if neither is there.
func (r *Runner) Executable(plugin, recorded string) (string, error) {
	if _, err := os.Stat(recorded); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return recorded, nil
	}
	binary, err := r.find(plugin)
	if err != nil {
		return "", fmt.Errorf("%s, with which an address was allocated, does not exist any more: %w", recorded, err)
	}
	return binary, nil
}

// located is a context as its calls are made now: with the executable that there is. A
// plugin that has moved looks for others in today's folders.
func (r *Runner) located(c call.Invocation) (call.Invocation, error) {
	binary, err := r.Executable(c.Plugin, c.Binary)
	if err != nil || binary == c.Binary {
		return c, err
	}
	c.Binary, c.Path = binary, strings.Join(r.opts.BinDirs, ":")
	return c, nil
}

// isELF reports whether a plugin is an ELF binary. Anything else is run by an
// interpreter: what a script does before the plugin reads its configuration is not known.
func (r *Runner) isELF(binary string) bool {
	info, err := os.Stat(binary)
	if err != nil {
		return false
	}
	is, ok := r.elf.get(binary, info)
	if !ok {
		is = beginsAsELF(binary)
		r.elf.put(binary, info, is)
	}
	return is
}

func beginsAsELF(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	magic := make([]byte, len(elf.ELFMAG))
	_, err = io.ReadFull(file, magic)
	return err == nil && string(magic) == elf.ELFMAG
}
