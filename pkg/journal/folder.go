package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
)

const (
	folderMode = 0o700
	// parentMode is that of folders above the state folder, where they are missing.
	parentMode = 0o755
)

// folder is an open folder. Everything in it is reached through its root, so that
// a link planted later leads nowhere.
type folder struct {
	*os.Root
	// identity tells it from another that its path may lead to later.
	identity
	// file is the folder for the calls that a root lacks.
	file *os.File
}

// openState opens the state folder, made if it is missing.
func openState(dir string) (*folder, error) {
	if dir == "" {
		return nil, errors.New("state folder: its path is empty; expected a path such as /var/lib/delegated-ipam (--state-dir)")
	}
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	if err := makePath(parent); err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	if err := makeDurably(func() error { return os.Mkdir(dir, folderMode) }, func() error { return syncPath(parent) }); err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	before, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	if err := ours(before); err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	f, err := newFolder(root, before)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state folder %s: %w", dir, err), root.Close())
	}
	return f, nil
}

// CheckDir tells why Open would refuse a state folder: it is a symbolic link, no folder,
// or another user's. One that is not there is fine. Nothing is made.
func CheckDir(dir string) error {
	info, err := os.Lstat(filepath.Clean(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = ours(info)
	}
	if err != nil {
		return fmt.Errorf("state folder %s: %w", dir, err)
	}
	return nil
}

// openSubfolder does for a folder inside the state folder what openState does for that one.
func openSubfolder(state *folder, name string) (*folder, error) {
	path := filepath.Join(state.Name(), name)
	if err := makeDurably(func() error { return state.Mkdir(name, folderMode) }, func() error { return syncFolder(state) }); err != nil {
		return nil, fmt.Errorf("state folder: %s: %w", path, err)
	}
	before, err := state.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("state folder: %s: %w", path, err)
	}
	if err := ours(before); err != nil {
		return nil, fmt.Errorf("state folder: %s: %w", path, err)
	}
	root, err := state.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("state folder: %s: %w", path, err)
	}
	f, err := newFolder(root, before)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state folder: %s: %w", path, err), root.Close())
	}
	return f, nil
}

// makePath is os.MkdirAll with every new folder durable.
func makePath(dir string) error {
	parent := filepath.Dir(dir)
	if _, err := os.Stat(dir); err == nil || parent == dir {
		return nil
	}
	if err := makePath(parent); err != nil {
		return err
	}
	return makeDurably(func() error { return os.Mkdir(dir, parentMode) }, func() error { return syncPath(parent) })
}

// makeDurably makes a folder unless it is there; a new one is synced into its
// parent, else a power loss takes it with every record in it.
func makeDurably(mkdir, syncParent func() error) error {
	failpoint.Reach(failpoint.FolderMaking)
	err := mkdir()
	if errors.Is(err, fs.ErrExist) {
		// We may have died between the two steps once. More often it is a mount
		// in a parent that is read-only, which is no reason to fail.
		_ = syncParent()
		return nil
	}
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.FolderMade)
	err = syncParent()
	failpoint.Reach(failpoint.FolderDurable)
	return err
}

// ours refuses what is no folder of this user: somebody else could change the
// records in it at any time, whatever its mode.
func ours(info fs.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		return errors.New("it is a symbolic link; expected a folder, so name the folder that the link leads to")
	}
	if !info.IsDir() {
		return fmt.Errorf("it is no folder (%s); expected a folder, or nothing", info.Mode().Type())
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to user %d; expected our own user %d, so change its owner or name another folder", stat.Uid, os.Geteuid())
	}
	return nil
}

// newFolder makes a folder of an opened root, after a last look that it is the one that
// was judged.
func newFolder(root *os.Root, judged fs.FileInfo) (*folder, error) {
	file, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	opened, err := file.Stat()
	if err == nil && !os.SameFile(opened, judged) {
		err = errors.New("it was replaced while it was opened; try again")
	}
	if err == nil {
		err = tighten(root, opened)
	}
	id := identity{}
	if err == nil {
		id, err = identityOf(file)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &folder{root, id, file}, nil
}

// tighten takes group and others off an opened folder.
func tighten(root *os.Root, opened fs.FileInfo) error {
	if opened.Mode().Perm() == folderMode {
		return nil
	}
	failpoint.Reach(failpoint.FolderTightening)
	err := root.Chmod(".", folderMode)
	failpoint.Reach(failpoint.FolderTightened)
	return err
}

// Close gives the folder's descriptors back. A second Close is no error.
func (f *folder) Close() error {
	_ = f.file.Close() // nothing was written by it
	return f.Root.Close()
}

// syncFolder makes the names in a folder durable. It opens a new descriptor each
// time, so that a failed fsync cannot hide behind an old one.
func syncFolder(f *folder) error {
	d, err := f.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func syncPath(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
