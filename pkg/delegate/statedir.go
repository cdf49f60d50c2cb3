package delegate

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// checkStateDir refuses, in a pod, a plugin whose state would be in the container:
// the plugin processes that serve the pods keep theirs on the host, and both would
// give away the same addresses. Only the folder's mount tells, so it is asked
// anew: a mount may come later.
func (r *Runner) checkStateDir(p profile.Profile, object pluginObject) error {
	if !r.opts.InPod {
		return nil
	}
	dir, key := p.StateDir(object["ipam"])
	if dir == "" {
		return nil
	}
	own, err := mountOf("/")
	if err != nil {
		return err
	}
	at, err := mountOf(dir)
	if err != nil {
		return err
	}
	if at != own {
		return nil
	}
	return fmt.Errorf("plugin %s keeps what it has given away in %s (ipam.%s), which is on this container's own file system; expected the host's folder, mounted: pods would get the same addresses", p.Type, dir, key)
}

// mount tells one mount from another by its ID, which also tells a folder of the
// host from the container's own where both are on one device. A kernel before 5.8
// tells only the device.
type mount struct {
	id           uint64
	major, minor uint32
}

// mountOf is the mount of a folder, or of the nearest one above it that is there:
// the plugin would make it on that.
func mountOf(dir string) (mount, error) {
	for {
		var st unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st)
		switch {
		case err == nil && st.Mask&unix.STATX_MNT_ID != 0:
			return mount{id: st.Mnt_id}, nil
		case err == nil:
			return mount{major: st.Dev_major, minor: st.Dev_minor}, nil
		case errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir):
			dir = filepath.Dir(dir)
		default:
			return mount{}, fmt.Errorf("state folder of the plugin: %w", &fs.PathError{Op: "statx", Path: dir, Err: err})
		}
	}
}
