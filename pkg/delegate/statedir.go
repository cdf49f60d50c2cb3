package delegate

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// checkStateDir refuses, in a pod, a plugin whose state would be in the container: the plugin
// processes that serve the pods keep theirs on the host, and both would allocate the same
// addresses. It looks at the mount of the folder each time, because that may be mounted later.
func (r *Runner) checkStateDir(p profile.Profile, object pluginObject) error {
	if !r.opts.InPod {
		return nil
	}
	dir, key := p.StateDir(object["ipam"])
	if dir == "" {
		return nil
	}
	own, err := mountIDOf("/")
	if err != nil {
		return err
	}
	at, err := mountIDOf(dir)
	if err != nil {
		return err
	}
	if at != own {
		return nil
	}
	return fmt.Errorf("plugin %s keeps its allocations in %s (ipam.%s), which is on this container's own file system; expected the host's folder, mounted: pods would get the same addresses", p.Type, dir, key)
}

// mountID identifies a mount by its ID, which differs between a folder of the host and the
// container's own even where both are on one device. A kernel before 5.8 reports only the device.
type mountID struct {
	id           uint64
	major, minor uint32
}

// mountIDOf returns the mount of a folder, or of the nearest existing folder above it: the plugin
// would create the folder there.
func mountIDOf(dir string) (mountID, error) {
	for {
		var st unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st)
		switch {
		case err == nil && st.Mask&unix.STATX_MNT_ID != 0:
			return mountID{id: st.Mnt_id}, nil
		case err == nil:
			return mountID{major: st.Dev_major, minor: st.Dev_minor}, nil
		case errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir):
			dir = filepath.Dir(dir)
		default:
			return mountID{}, fmt.Errorf("state folder of the plugin: %w", &fs.PathError{Op: "statx", Path: dir, Err: err})
		}
	}
}
