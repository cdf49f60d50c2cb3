package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// directory describes a directory or, if it does not exist, its nearest existing parent, in which
// it would be created.
type directory struct {
	path string
	// at is the directory that the other fields describe. err is why they are not set.
	at  string
	err error
	// readOnly means that its file system is mounted read-only, and notWritable is why this
	// user cannot write to it.
	readOnly    bool
	notWritable error
	// free is the free space for this user in bytes. inodes is the number of inodes of the
	// file system, 0 if it is not fixed, and freeInodes the number of free ones.
	free, inodes, freeInodes uint64
	mount                    files.Mount
}

// collectDirectory describes a directory. It writes nothing.
func collectDirectory(path string) directory {
	d := directory{path: path, at: filepath.Clean(path)}
	for {
		info, err := os.Stat(d.at)
		if err == nil && info.IsDir() {
			break
		}
		if err == nil {
			err = &fs.PathError{Op: "stat", Path: d.at, Err: unix.ENOTDIR}
		}
		parent := filepath.Dir(d.at)
		if !errors.Is(err, fs.ErrNotExist) || parent == d.at {
			d.err = err
			return d
		}
		d.at = parent
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.at, &st); err != nil {
		d.err = &fs.PathError{Op: "statfs", Path: d.at, Err: err}
		return d
	}
	d.readOnly = st.Flags&unix.ST_RDONLY != 0
	d.notWritable = unix.Faccessat(unix.AT_FDCWD, d.at, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	d.free = st.Bavail * uint64(st.Bsize)
	d.inodes, d.freeInodes = st.Files, st.Ffree
	d.mount = files.MountOf(d.at)
	return d
}

// writeProblem returns why the directory cannot be written to; empty if it can.
func (d directory) writeProblem() string {
	switch {
	case d.err != nil:
		return d.err.Error()
	case d.readOnly:
		return d.at + " is on a file system that is mounted read-only"
	case d.notWritable != nil:
		return d.at + " is not writable for this user: " + d.notWritable.Error()
	}
	return ""
}

// inEmptyDir reports whether a mount is a volume that is removed with its pod, by the path of each
// emptyDir below the kubelet's directory (Kubernetes, pkg/volume/emptydir). A volume in memory
// (medium: Memory) has the Type tmpfs.
func inEmptyDir(m files.Mount) bool {
	return strings.Contains(m.Root+"/", "/volumes/kubernetes.io~empty-dir/")
}

// source returns the path of the directory on the file system of its mount, below the volume
// if it is in one; empty if it is unknown.
func (d directory) source() string {
	below, err := filepath.Rel(d.mount.Point, d.at)
	if d.mount.Point == "" || err != nil || !filepath.IsLocal(below) {
		return ""
	}
	source := filepath.Join(d.mount.Root, below)
	// The path of each volume of Docker and Podman has this (Docker, volume/local): in a node that is a
	// container, as with kind, /var is one.
	if _, inVolume, ok := strings.Cut(source, "/_data/"); ok {
		return "/" + inVolume
	}
	return source
}
