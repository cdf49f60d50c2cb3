package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

const (
	dirMode = 0o700
	// parentMode is the mode of new directories above the state directory.
	parentMode = 0o755
	// stateDirFlag is the option that names the state directory.
	stateDirFlag = "--state-dir"
)

// errEmptyPath is the error of a state directory without a path.
var errEmptyPath = errors.New("state directory: empty path; expected a path such as /var/lib/delegated-ipam (--state-dir)")

// directory is an open directory. Its entries are accessed through its root, so that a link
// planted later leads nowhere.
type directory struct {
	*os.Root
	// file is the directory for calls that a root lacks. While it is open, no other directory
	// gets its inode.
	file *os.File
	// info is from the time of opening.
	info fs.FileInfo
}

// openStateDir opens the state directory, created if it is missing.
func openStateDir(path string) (*directory, error) {
	if path == "" {
		return nil, errEmptyPath
	}
	path = filepath.Clean(path)
	parent := filepath.Dir(path)
	err := mkdirAll(parent)
	if err == nil {
		err = ensureDir(func() error { return os.Mkdir(path, dirMode) }, func() error { return syncPath(parent) })
	}
	var d *directory
	if err == nil {
		d, err = openPath(path)
	}
	if err == nil {
		err = d.restrictMode()
	}
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", path, withRemedy(err, path))
	}
	return d, nil
}

// openSubdir opens a directory in the state directory, created if it is missing.
func openSubdir(state *directory, name string) (*directory, error) {
	err := ensureDir(func() error { return files.In(state.Root, state.Mkdir(name, dirMode)) }, func() error { return syncDir(state) })
	var d *directory
	if err == nil {
		d, err = openDirectory(func() (fs.FileInfo, error) { return state.lstat(name) }, func() (*os.Root, error) {
			root, err := state.OpenRoot(name)
			return root, files.In(state.Root, err)
		})
	}
	if err == nil {
		err = d.restrictMode()
	}
	if err != nil {
		path := state.path(name)
		return nil, fmt.Errorf("directory %s: %w", path, withRemedy(err, path))
	}
	return d, nil
}

// openPath opens an existing directory without a change of its mode.
func openPath(path string) (*directory, error) {
	return openDirectory(func() (fs.FileInfo, error) { return os.Lstat(path) }, func() (*os.Root, error) { return os.OpenRoot(path) })
}

// openDirectory opens the directory that lstat describes, if checkDir accepts it.
func openDirectory(lstat func() (fs.FileInfo, error), open func() (*os.Root, error)) (*directory, error) {
	checked, err := lstat()
	if err == nil {
		err = checkDir(checked)
	}
	if err != nil {
		return nil, err
	}
	root, err := open()
	if err != nil {
		return nil, err
	}
	d := &directory{Root: root}
	if d.file, err = d.self(); err == nil {
		d.info, err = d.file.Stat()
	}
	if err == nil && !os.SameFile(d.info, checked) {
		err = errors.New("replaced while it was opened; try again")
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// CheckDir returns why Open would refuse a state directory: a symbolic link, not a directory, or
// owned by another user. A missing one is accepted. Nothing is created.
func CheckDir(path string) error {
	info, err := os.Lstat(filepath.Clean(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = checkDir(info)
	}
	if err != nil {
		return fmt.Errorf("state directory %s: %w", path, withRemedy(err, path))
	}
	return nil
}

// checkDir accepts only a directory of this user: another owner could change its records at any
// time, regardless of its mode.
func checkDir(info fs.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		return errors.New("symbolic link; expected a directory: configure the target of the link instead")
	}
	if !info.IsDir() {
		return errors.New("not a directory; expected a directory, or a path that does not exist")
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("owned by user %d; expected user %d: change its owner or configure another directory", stat.Uid, os.Geteuid())
	}
	return nil
}

// withRemedy returns an error without path, which the text of the caller has, and with what to do.
func withRemedy(err error, path string) error {
	return files.WithRemedy(files.WithoutPath(err, path), stateDirFlag)
}

// restrictMode removes the permissions of group and others. After an error the directory is closed.
func (d *directory) restrictMode() error {
	mode := d.info.Mode().Perm()
	if mode == dirMode {
		return nil
	}
	failpoint.Reach(failpoint.DirTightening)
	err := d.Chmod(".", dirMode)
	failpoint.Reach(failpoint.DirTightened)
	if err != nil {
		return errors.Join(fmt.Errorf("mode %04o cannot be changed to %04o: %w", mode, dirMode, files.Cause(err)), d.Close())
	}
	return nil
}

// Close closes the directory. A second Close is not an error.
func (d *directory) Close() error {
	_ = d.file.Close() // only read
	return d.Root.Close()
}

// path returns the path of an entry.
func (d *directory) path(name string) string { return filepath.Join(d.Name(), name) }

// lstat is Lstat with the full path in its error.
func (d *directory) lstat(name string) (fs.FileInfo, error) {
	info, err := d.Lstat(name)
	return info, files.In(d.Root, err)
}

// self opens the directory again, which a sync needs.
func (d *directory) self() (*os.File, error) {
	file, err := d.Open(".")
	return file, files.In(d.Root, err)
}

// entries returns the entries, by name.
func (d *directory) entries() ([]fs.DirEntry, error) {
	self, err := d.self()
	if err != nil {
		return nil, err
	}
	defer self.Close()
	all, err := self.ReadDir(-1)
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all, err
}

// check returns nil if a path leads to the open directory by what Lstat of the path returned. kind
// names the directory in the error, which wraps errReplaced if something is missing or replaced.
func (d *directory) check(kind string, info fs.FileInfo, err error) error {
	switch err = files.Cause(err); {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%s %s: %w; %w", kind, d.Name(), err, errReplaced)
	case err != nil:
		return fmt.Errorf("%s %s: %w", kind, d.Name(), err)
	case os.SameFile(info, d.info):
		return nil
	}
	found := "another file"
	if info.IsDir() {
		found = "another directory or file system"
	} else if info.Mode()&fs.ModeSymlink != 0 {
		found = "a symbolic link"
	}
	return fmt.Errorf("%s %s leads to %s (%s; expected %s); %w", kind, d.Name(), found, fileID(info), fileID(d.info), errReplaced)
}

// fileID returns device and inode of a file, for errors.
func fileID(info fs.FileInfo) string {
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("device %d:%d, inode %d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
}

// mkdirAll is os.MkdirAll that makes each new directory durable.
func mkdirAll(path string) error {
	parent := filepath.Dir(path)
	if _, err := os.Stat(path); err == nil || parent == path {
		return nil
	}
	if err := mkdirAll(parent); err != nil {
		return err
	}
	return ensureDir(func() error { return os.Mkdir(path, parentMode) }, func() error { return syncPath(parent) })
}

// ensureDir creates a directory unless it exists. A new one is synced into its parent, because
// otherwise a power loss removes it with its records.
func ensureDir(mkdir, syncParent func() error) error {
	failpoint.Reach(failpoint.DirMaking)
	err := mkdir()
	if errors.Is(err, fs.ErrExist) {
		// A previous run may have been killed between the two steps. A sync that fails is
		// accepted, because a parent of a mount may be read-only.
		_ = syncParent()
		return nil
	}
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.DirMade)
	err = syncParent()
	failpoint.Reach(failpoint.DirDurable)
	return err
}

// syncDir makes the entries of a directory durable. It opens a new descriptor each time, so
// that a failed fsync is not hidden by an old one.
func syncDir(d *directory) error { return syncOpened(d.self()) }

func syncPath(path string) error { return syncOpened(os.Open(path)) }

func syncOpened(f *os.File, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
