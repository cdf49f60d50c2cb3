package app

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// maxProfile bounds a profile file, in bytes; real ones have less than a kilobyte.
const maxProfile = 1 << 20

// profiles are the files of --plugin-profile over the embedded profiles.
type profiles struct {
	embedded func() (profile.Set, error)
	files    []string
}

func newProfiles(files []string) profiles {
	return profiles{embedded: sync.OnceValues(profile.Load), files: files}
}

// load reads the files. Whoever needs a profile asks anew, so that a file which
// is mended counts at once, and one which is broken stops new addresses and
// nothing else: the process stays up, and what is held has its profile in its
// record. The error names the option, the file, the profile and the field.
func (p profiles) load() (profile.Set, error) {
	set, err := p.embedded()
	if err != nil {
		return nil, err
	}
	files := make([]profile.File, len(p.files))
	for i, name := range p.files {
		files[i].Name = name
		if files[i].Data, err = readProfile(name); err != nil {
			return nil, fmt.Errorf("--plugin-profile: %w", err)
		}
	}
	if set, err = set.With(files...); err != nil {
		return nil, fmt.Errorf("--plugin-profile: %w", err)
	}
	return set, nil
}

// readProfile reads a file that can hold nobody up, as a FIFO would.
func readProfile(file string) ([]byte, error) {
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
		return nil, fmt.Errorf("%s: it is no regular file (%s); expected a profile in JSON", file, info.Mode().Type())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxProfile+1))
	if err == nil && len(data) > maxProfile {
		err = fmt.Errorf("%s: it has more than %d bytes; expected a profile in JSON", file, maxProfile)
	}
	return data, err
}
