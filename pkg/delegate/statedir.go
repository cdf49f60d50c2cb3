package delegate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// checkStateDir refuses, in a pod, a plugin whose state would be in the container:
// the plugin processes that serve the pods keep theirs on the host, and both would
// give away the same addresses. Only the folder's device tells, so it is asked
// anew: a mount may come later.
func (r *Runner) checkStateDir(p profile.Profile, object map[string]json.RawMessage) error {
	dir, key := p.StateDir(object["ipam"])
	if !r.opts.InPod || dir == "" {
		return nil
	}
	own, err := device("/")
	if err != nil {
		return err
	}
	at, err := device(dir)
	if err != nil {
		return err
	}
	if at != own {
		return nil
	}
	return fmt.Errorf("plugin %s keeps what it has given away in %s (ipam.%s), which is on this container's own file system; expected the host's folder, mounted: pods would get the same addresses", p.Type, dir, key)
}

// device is the device of a folder, or of the nearest one above it that is there:
// the plugin would make it on that.
func device(dir string) (uint64, error) {
	for {
		var st unix.Stat_t
		err := unix.Stat(dir, &st)
		switch {
		case err == nil:
			return st.Dev, nil
		case errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir):
			dir = filepath.Dir(dir)
		default:
			return 0, fmt.Errorf("state folder of the plugin: %w", &fs.PathError{Op: "stat", Path: dir, Err: err})
		}
	}
}
