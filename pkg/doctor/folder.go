package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Folder is what was seen of a folder, or, where it is not there yet, of the nearest
// one above it, in which it would be made.
type Folder struct {
	Path string
	// At is the folder that was looked at. Err is why none could be.
	At  string
	Err error
	// ReadOnly tells that nobody may write to it, and NotWritable why this user may not.
	ReadOnly    bool
	NotWritable error
	// Free is the room for this user in bytes. Inodes are those of the file system, 0
	// where it has no fixed number, and FreeInodes those that are left.
	Free, Inodes, FreeInodes uint64
	// Mount is what it is on.
	Mount Mount
}

// Mount is one line of mountinfo (proc_pid_mountinfo(5)); its zero value is one that
// could not be found.
type Mount struct {
	// Type is the file system's, such as ext4.
	Type string
	// Point is where it is mounted. Root is what of its file system is mounted there:
	// of a folder that is bind-mounted into a container, its path on that file system.
	Point, Root string
}

// lookAtFolder looks at a folder and writes nothing.
func lookAtFolder(path string) Folder {
	f := Folder{Path: path, At: filepath.Clean(path)}
	for {
		info, err := os.Stat(f.At)
		if err == nil && info.IsDir() {
			break
		}
		if err == nil {
			err = &fs.PathError{Op: "stat", Path: f.At, Err: unix.ENOTDIR}
		}
		parent := filepath.Dir(f.At)
		if !errors.Is(err, fs.ErrNotExist) || parent == f.At {
			f.Err = err
			return f
		}
		f.At = parent
	}
	var st unix.Statfs_t
	if err := unix.Statfs(f.At, &st); err != nil {
		f.Err = &fs.PathError{Op: "statfs", Path: f.At, Err: err}
		return f
	}
	f.ReadOnly = st.Flags&unix.ST_RDONLY != 0
	f.NotWritable = unix.Faccessat(unix.AT_FDCWD, f.At, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	f.Free = st.Bavail * uint64(st.Bsize)
	f.Inodes, f.FreeInodes = st.Files, st.Ffree
	f.Mount = mountOf(f.At)
	return f
}

// mountOf is the mount that a folder is on. A kernel that does not say (before 5.8)
// and a /proc that is not there leave it unknown.
func mountOf(path string) Mount {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &st) != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return Mount{}
	}
	all, err := procfs.GetMounts()
	if err != nil {
		return Mount{}
	}
	for _, m := range all {
		if uint64(m.MountID) == st.Mnt_id {
			return Mount{Type: m.FSType, Point: m.MountPoint, Root: m.Root}
		}
	}
	return Mount{}
}

// emptyDir is in the path of each emptyDir volume below the kubelet's folder
// (Kubernetes, pkg/volume/emptydir).
const emptyDir = "/volumes/kubernetes.io~empty-dir/"

// inEmptyDir tells whether it is in a volume that goes away with its pod. That the
// volume's own file system is a tmpfs (medium: Memory) shows in Type.
func (m Mount) inEmptyDir() bool { return strings.Contains(m.Root+"/", emptyDir) }

// nodeVolume is in the path of each volume of Docker and Podman (Docker,
// volume/local): where the node is itself a container, as with kind, its /var is one.
const nodeVolume = "/_data/"

// sourceOf is the path of a folder on the mount's own file system, below the volume if
// it is in one; empty if that is not known.
func (m Mount) sourceOf(path string) string {
	below, err := filepath.Rel(m.Point, path)
	if m.Point == "" || err != nil || !filepath.IsLocal(below) {
		return ""
	}
	source := filepath.Join(m.Root, below)
	if _, inVolume, ok := strings.Cut(source, nodeVolume); ok {
		return "/" + inVolume
	}
	return source
}

// writable says why a folder cannot be written to; empty if it can.
func (f Folder) writable() string {
	switch {
	case f.Err != nil:
		return f.Err.Error()
	case f.ReadOnly:
		return f.At + " is on a file system that is mounted read-only"
	case f.NotWritable != nil:
		return f.At + " cannot be written to by this user: " + f.NotWritable.Error()
	}
	return ""
}
