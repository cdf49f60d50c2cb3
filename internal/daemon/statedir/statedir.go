// Package statedir opens and locks the state directory, notices when another one takes its place, and removes it
// (docs/design/state-directory.md).
package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

const (
	dirMode, fileMode = 0o700, 0o600
	// parentMode is the mode of new directories above the state directory.
	parentMode = 0o755
	// Flag is the option that names the state directory.
	Flag = "--state-dir"
)

var (
	// errEmptyPath is the error of a state directory without a path.
	errEmptyPath = errors.New("state directory: empty path; expected a path such as /var/lib/delegated-ipam (--state-dir)")
	// ErrReplaced is wrapped by errors of a state directory, or of a file in it, that is missing or is not the
	// opened one.
	ErrReplaced = errors.New("nothing is changed until the original returns")
)

// Dir is an open state directory. Its entries are accessed through its root, so that a link
// planted later leads nowhere.
type Dir struct {
	*os.Root
	// File is the directory for calls that a root lacks. While it is open, no other directory
	// gets its inode. Close closes it.
	File *os.File
	// info is from the time of opening.
	info fs.FileInfo
	// lock is the locked file of Lock; nil without it.
	lock *os.File
}

// create creates the directory if it is missing, and makes its name durable: otherwise a power loss could remove
// it with its files.
func create(path string) error {
	failpoint.Reach(failpoint.DirMaking)
	parent := filepath.Dir(path)
	err := os.MkdirAll(parent, parentMode)
	failpoint.Reach(failpoint.DirMade)
	if err == nil {
		err = os.Mkdir(path, dirMode)
	}
	failpoint.Reach(failpoint.DirMade)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// A previous run may have been killed before this.
	for ; ; parent = filepath.Dir(parent) {
		err := files.Sync(os.Open(parent))
		failpoint.Reach(failpoint.DirDurable)
		if errors.Is(err, unix.EIO) { // others: it is read-only, or not ours
			return err
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

// Open opens an existing state directory and changes nothing. A symbolic link, a file, and a directory of another user
// are refused.
func Open(path string) (*Dir, error) {
	d, err := open(filepath.Clean(path))
	if err != nil {
		return nil, pathError(path, err)
	}
	return d, nil
}

func open(path string) (*Dir, error) {
	checked, err := lstat(path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{Root: root}
	if d.File, err = root.Open("."); err == nil {
		d.info, err = d.File.Stat()
	}
	if err == nil && !os.SameFile(d.info, checked) {
		err = errors.New("replaced while it was opened; try again")
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Check returns why Open would refuse a state directory. A missing one is accepted.
func Check(path string) error {
	_, err := lstat(filepath.Clean(path))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return pathError(path, err)
}

// lstat describes a directory of this user. Another owner could change its files at any time, regardless of its mode.
func lstat(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	switch owner := int(info.Sys().(*syscall.Stat_t).Uid); {
	case info.Mode()&fs.ModeSymlink != 0:
		err = errors.New("symbolic link; expected a directory: configure the target of the link instead")
	case !info.IsDir():
		err = errors.New("not a directory; expected a directory, or a path that does not exist")
	case owner != os.Geteuid():
		err = fmt.Errorf("owned by user %d; expected user %d: change its owner or configure another directory", owner, os.Geteuid())
	}
	return info, err
}

// pathError adds the path, once, and what to do.
func pathError(path string, err error) error {
	return fmt.Errorf("state directory %s: %w", path, files.WithRemedy(files.WithoutPath(err, path), Flag))
}

// restrictMode removes the permissions of group and others.
func (d *Dir) restrictMode() error {
	mode := d.info.Mode().Perm()
	if mode == dirMode {
		return nil
	}
	failpoint.Reach(failpoint.DirTightening)
	err := d.Chmod(".", dirMode)
	failpoint.Reach(failpoint.DirTightened)
	if err != nil {
		err = fmt.Errorf("mode %04o cannot be changed to %04o: %w", mode, dirMode, files.Cause(err))
	}
	return err
}

// Close closes and unlocks the directory.
func (d *Dir) Close() error {
	if d.File != nil {
		_ = d.File.Close() // only read
	}
	err := d.Root.Close()
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return err
}

// Path returns the path of an entry.
func (d *Dir) Path(name string) string { return filepath.Join(d.Name(), name) }

// Sync makes the names in a directory durable, "." for the state directory itself. It opens a new descriptor
// each time, so that a failed sync is not hidden by an old one.
func (d *Dir) Sync(name string) error {
	file, err := d.Open(name)
	failpoint.Reach(failpoint.DirSyncing)
	err = files.Sync(file, err)
	failpoint.Reach(failpoint.DirSynced)
	return files.In(d.Root, err)
}

// Available returns nil while the path of the directory leads to the open directory, and the name of a file in it to
// the given one; nil for none. Otherwise the error describes what the path leads to. It takes a few system calls.
func (d *Dir) Available(name string, opened fs.FileInfo) error {
	info, err := os.Lstat(d.Name())
	err = same("state directory", d.Name(), d.info, info, err)
	if err == nil && opened != nil {
		info, err = d.Lstat(name)
		err = same("file", d.Path(name), opened, info, err)
	}
	if errors.Is(err, ErrReplaced) {
		return fmt.Errorf("%w: mount or move back the directory with %s, or restart to use the current one", err, fileID(d.info))
	}
	return files.WithRemedy(err, Flag)
}

// same returns nil if a path leads to what was opened, by what Lstat of the path returned.
func same(kind, path string, opened, info fs.FileInfo, err error) error {
	switch err = files.Cause(err); {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%s %s: %w; %w", kind, path, err, ErrReplaced)
	case err != nil:
		return fmt.Errorf("%s %s: %w", kind, path, err)
	case os.SameFile(info, opened):
		return nil
	}
	found := "another file"
	if info.IsDir() {
		found = "another directory or file system"
	} else if info.Mode()&fs.ModeSymlink != 0 {
		found = "a symbolic link"
	}
	return fmt.Errorf("%s %s leads to %s (%s; expected %s); %w", kind, path, found, fileID(info), fileID(opened), ErrReplaced)
}

// fileID returns device and inode of a file, for errors.
func fileID(info fs.FileInfo) string {
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("device %d:%d, inode %d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
}
