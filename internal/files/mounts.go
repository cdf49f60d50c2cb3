package files

import (
	"io/fs"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// MountID identifies a mount. Two paths with one ID are on one mount. It distinguishes a directory of
// the host from the container's own even if both are on one device. A kernel before 5.8 reports only
// the device.
type MountID struct {
	mount        uint64
	major, minor uint32
}

// MountIDOf returns the ID of the mount of a path. Errors are *fs.PathError.
func MountIDOf(path string) (MountID, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st); err != nil {
		return MountID{}, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return MountID{major: st.Dev_major, minor: st.Dev_minor}, nil
	}
	return MountID{mount: st.Mnt_id}, nil
}

// Mount is one line of mountinfo (proc_pid_mountinfo(5)). Its zero value is an unknown mount.
type Mount struct {
	// Type is the type of the file system, such as ext4.
	Type string
	// Point is the mount point. Root is the mounted directory of the file system: for a directory that
	// is bind-mounted into a container, its path on the file system.
	Point, Root string
	// Receives reports that mounts which are made in it on the host appear here, too: it is shared, or a
	// slave (mount_namespaces(7)), and the host has not removed the directory.
	Receives bool
}

// MountOf returns the mount of a path. It is unknown with a kernel before 5.8, which does not report
// it, without /proc, and for a path that does not exist.
func MountOf(path string) Mount {
	id, err := MountIDOf(path)
	if err != nil || id.mount == 0 {
		return Mount{}
	}
	all, err := procfs.GetMounts()
	if err != nil {
		return Mount{}
	}
	for _, m := range all {
		if uint64(m.MountID) == id.mount {
			_, shared := m.OptionalFields["shared"]
			_, slave := m.OptionalFields["master"]
			return Mount{Type: m.FSType, Point: m.MountPoint, Root: m.Root, Receives: (shared || slave) && !strings.HasSuffix(m.Root, "//deleted")}
		}
	}
	return Mount{}
}
