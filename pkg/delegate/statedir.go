package delegate

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/mounts"
)

// checkStateDir refuses, in a pod, a plugin whose state would be in the container: the plugin
// processes that serve the pods keep theirs on the host, and both would allocate the same
// addresses. It looks at the mount of the directory each time, because that may be mounted later.
func (r *Runner) checkStateDir(p profile.Profile, object pluginObject) error {
	if !r.opts.InPod {
		return nil
	}
	dir, key := p.StateDir(object["ipam"])
	if dir == "" {
		return nil
	}
	own, err := mountOfStateDir("/")
	if err != nil {
		return err
	}
	at, err := mountOfStateDir(dir)
	if err != nil {
		return err
	}
	if at != own {
		return nil
	}
	return fmt.Errorf("plugin %s keeps its allocations in %s (ipam.%s), which is on this container's own file system; expected the host's directory, mounted: pods would get the same addresses", p.Type, dir, key)
}

// mountOfStateDir returns the mount of a directory, or of the nearest existing directory above it: the
// plugin would create the directory there.
func mountOfStateDir(dir string) (mounts.ID, error) {
	id, err := mounts.IDOf(dir)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		id, err = mounts.IDOf(dir)
	}
	if err != nil {
		return mounts.ID{}, fmt.Errorf("state directory of the plugin: %w", err)
	}
	return id, nil
}
