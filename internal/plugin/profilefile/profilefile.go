// Package profilefile reads the plugin profiles of --plugin-profile and adds them to the
// embedded ones.
package profilefile

import (
	"fmt"
	"sync"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
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

// read reads one file. It does not block on a FIFO.
func read(file string) ([]byte, error) {
	data, err := files.Read(file, maxSize)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; expected a file with a profile in JSON", file, err)
	}
	return data, nil
}
