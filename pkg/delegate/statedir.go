package delegate

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/mounts"
)

// checkHostDirs refuses, in a pod, a plugin whose state would be in the container: the plugin
// processes that serve the pods keep theirs on the host, and both would allocate the same
// addresses. The same holds for required files that a process of the host reads. It looks at the
// mounts each time, because a directory may be mounted later.
func (r *Runner) checkHostDirs(p profile.Profile, object pluginObject) error {
	if !r.opts.InPod {
		return nil
	}
	if dir, key := p.StateDir(object["ipam"]); dir != "" {
		if err := checkMounted(dir, "plugin %s keeps its allocations in %s (ipam.%s), which is on this container's own file system; expected the host's directory, mounted: pods would get the same addresses", p.Type, dir, key); err != nil {
			return err
		}
	}
	for _, required := range p.Required(object["ipam"]) {
		if !required.OnHost {
			continue
		}
		for _, path := range required.Paths {
			if err := checkMounted(path, "plugin %s needs the host's %s, and %s is on this container's own file system; expected it mounted from the host: %s", p.Type, path, path, required.Why); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMounted returns the error of the format if a path is on this container's own file system.
func checkMounted(path, format string, args ...any) error {
	own, err := mountOfStateDir("/")
	if err != nil {
		return err
	}
	at, err := mountOfStateDir(path)
	if err != nil || at != own {
		return err
	}
	return fmt.Errorf(format, args...)
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
