// Package profilefile reads the plugin profiles of --plugin-profile and adds them to the
// embedded ones.
package profilefile

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// maxSize bounds a profile file, in bytes; real ones have less than a kilobyte.
const maxSize = 1 << 20

// Loader returns a function that reads the files and returns their profiles over the
// embedded ones. It is called for each use of a profile, so a fixed file takes effect
// immediately, and a broken one stops only new addresses: the process keeps running, and
// an attachment has its profile in its record. The function may be called concurrently.
// Its error names the option, the file, the profile and the field.
func Loader(files []string) func() (profile.Set, error) {
	embedded := sync.OnceValues(profile.Load)
	return func() (profile.Set, error) {
		set, err := embedded()
		if err != nil {
			return nil, err
		}
		if set, err = withFiles(set, files); err != nil {
			return nil, fmt.Errorf("--plugin-profile: %w", err)
		}
		return set, nil
	}
}

func withFiles(set profile.Set, names []string) (profile.Set, error) {
	files := make([]profile.File, len(names))
	for i, name := range names {
		data, err := read(name)
		if err != nil {
			return nil, err
		}
		files[i] = profile.File{Name: name, Data: data}
	}
	return set.With(files...)
}

// read reads a regular file. It does not block on a FIFO.
func read(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file (%s); expected a profile in JSON", file, info.Mode().Type())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(data) > maxSize {
		err = fmt.Errorf("%s: larger than %d bytes; expected a profile in JSON", file, maxSize)
	}
	return data, err
}
