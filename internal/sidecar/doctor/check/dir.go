package check

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"golang.org/x/sys/unix"
)

// Dir describes a directory or, if it does not exist, its nearest existing parent, in which
// it would be created.
type Dir struct {
	// Path is its path.
	Path string
	// At is the directory that the other fields describe. Err is why they are not set.
	At  string
	Err error
	// ReadOnly means that its file system is mounted read-only, and NotWritable is why this
	// user cannot write to it.
	ReadOnly    bool
	NotWritable error
	// Free is the free space for this user in bytes. Inodes is the number of inodes of the
	// file system, 0 if it is not fixed, and FreeInodes the number of free ones.
	Free, Inodes, FreeInodes uint64
	// Mount is the mount of At.
	Mount files.Mount
}

// CollectDir describes a directory. It writes nothing.
func CollectDir(path string) Dir {
	f := Dir{Path: path, At: filepath.Clean(path)}
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
	f.Mount = files.MountOf(f.At)
	return f
}

// WriteProblem returns why the directory cannot be written to; empty if it can.
func (f Dir) WriteProblem() string {
	switch {
	case f.Err != nil:
		return f.Err.Error()
	case f.ReadOnly:
		return f.At + " is on a file system that is mounted read-only"
	case f.NotWritable != nil:
		return f.At + " is not writable for this user: " + f.NotWritable.Error()
	}
	return ""
}
