package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
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
		if mounted, err := anyMounted(dir); err != nil || !mounted {
			return cmp.Or(err, fmt.Errorf("plugin %s keeps its allocations in %s (ipam.%s), which is on this container's own file system; expected the host's directory, mounted: pods would get the same addresses", p.Type, dir, key))
		}
	}
	for _, required := range p.Required(object["ipam"]) {
		if !required.OnHost {
			continue
		}
		if mounted, err := anyMounted(required.Paths...); err != nil || !mounted {
			return cmp.Or(err, fmt.Errorf("plugin %s needs the host's %s, which is on this container's own file system; expected it mounted from the host: %s", p.Type, strings.Join(required.Paths, " or "), required.Why))
		}
	}
	return nil
}

// anyMounted reports whether one of the paths is not on this container's own file system.
func anyMounted(paths ...string) (bool, error) {
	own, err := mountOf("/")
	for _, path := range paths {
		at, pathErr := mountOf(path)
		if err = errors.Join(err, pathErr); err == nil && at != own {
			return true, nil
		}
	}
	return false, err
}

// mountOf returns the mount of a directory, or of the nearest existing directory above it: the
// plugin would create the directory there.
func mountOf(dir string) (files.MountID, error) {
	id, err := files.MountIDOf(dir)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		id, err = files.MountIDOf(dir)
	}
	if err != nil {
		return files.MountID{}, fmt.Errorf("directory of the plugin: %w", err)
	}
	return id, nil
}
