package statedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// lostAndFound is a directory that mkfs creates in a new file system.
const lostAndFound = "lost+found"

// RemoveOptions configure Remove.
type RemoveOptions struct {
	// Files are the names of the files in the state directory that the program makes, and Dirs of its directories
	// with files only. Those of a directory must have been a reason to refuse.
	Files, Dirs []string
	// Prepare refuses the removal by its error, or removes what other packages keep, under the lock and
	// before anything else is removed; it returns the removed paths.
	Prepare func() (removed []string, err error)
	// KeepDir keeps the state directory itself, emptied: a mount point cannot be removed.
	KeepDir bool
	// Self and OnWait are passed to Lock.
	Self   Holder
	OnWait func(holder string)
}

// Removal is what Remove did. All are paths, in the order of removal.
type Removal struct {
	// Removed are the files and directories that were removed.
	Removed []string
	// Foreign are files that are not the program's, and stay.
	Foreign []string
}

// Remove removes the state directory and exactly the files that this program made in it, under the directory's lock,
// for which it waits as Lock does. A missing directory is success.
//
// It refuses a directory that is not a state directory (a symbolic link, of another user, with foreign files and
// without the lock of a sidecar) before it changes anything. Foreign files in a state directory stay, with the
// directory. The lock is removed last, so that after a crash another call completes the removal.
func Remove(ctx context.Context, path string, o RemoveOptions) (r Removal, err error) {
	if path == "" {
		return r, errEmptyPath
	}
	path = filepath.Clean(path)
	names, err := recognize(path, o)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil && len(names) > 0 {
		err = r.removeFiles(ctx, path, o)
	}
	if err != nil || len(r.Foreign) > 0 || o.KeepDir {
		return r, err
	}
	// What replaced the directory stays: a symbolic link and a directory with files cannot be removed so.
	failpoint.Reach(failpoint.UninstallRemoving)
	err = unix.Rmdir(path)
	failpoint.Reach(failpoint.UninstallRemoved)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EBUSY) { // the second for a mount point
		return r, nil
	}
	if err != nil {
		return r, pathError(path, fmt.Errorf("the empty directory cannot be removed: %w", err))
	}
	r.Removed = append(r.Removed, path)
	return r, nil
}

// recognize returns the names in a directory, or why it is not a state directory.
func recognize(path string, o RemoveOptions) ([]string, error) {
	d, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.names(".")
	foreign := slices.IndexFunc(names, func(name string) bool {
		return !slices.Contains(slices.Concat(o.Files, o.Dirs, []string{lockName, lostAndFound}), name)
	})
	if err != nil || foreign < 0 {
		return names, err
	}
	// The lock of a sidecar names a holder, and is removed last.
	text, err := files.ReadIn(d.Root, lockName, maxHolder)
	if line, _, _ := strings.Cut(string(text), "\n"); err == nil && holderPattern.MatchString(line) {
		return names, nil
	}
	return nil, pathError(path, fmt.Errorf("not a state directory: no file %q that names a process of delegated-ipam, and %q is not a file of delegated-ipam; nothing is removed, so remove what remains, or name the right directory with %s", lockName, names[foreign], Flag))
}

// names returns the names in a directory, sorted; none if it is missing.
func (d *Dir) names(dir string) (names []string, err error) {
	entries, err := fs.ReadDir(d.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, files.In(d.Root, err)
}

// removeFiles removes every file of the program, the lock last.
func (r *Removal) removeFiles(ctx context.Context, path string, o RemoveOptions) (err error) {
	d, err := Lock(ctx, path, o.Self, o.OnWait)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if o.Prepare != nil {
		removed, err := o.Prepare()
		r.Removed = append(r.Removed, removed...)
		if err != nil {
			return err
		}
	}
	if err := d.Available("", nil); err != nil {
		return err
	}
	for _, dir := range o.Dirs {
		names, err := d.names(dir)
		if err != nil {
			return err
		}
		for _, name := range append(names, "") {
			if err := r.remove(d, filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	for _, name := range append(slices.Clone(o.Files), lockName) {
		// An entry that is not a regular file is foreign, regardless of its name.
		if info, err := d.Lstat(name); err == nil && info.Mode().IsRegular() {
			if err := r.remove(d, name); err != nil {
				return err
			}
		}
	}
	left, err := d.names(".")
	for _, name := range left {
		if name != lostAndFound || !o.KeepDir {
			r.Foreign = append(r.Foreign, d.Path(name))
		}
	}
	return err
}

// remove removes a file or an empty directory; of a symbolic link the link itself. A directory that is not empty is foreign.
func (r *Removal) remove(d *Dir, name string) error {
	failpoint.Reach(failpoint.UninstallRemoving)
	err := d.Root.Remove(name)
	failpoint.Reach(failpoint.UninstallRemoved)
	switch {
	case err == nil:
		r.Removed = append(r.Removed, d.Path(name))
	case errors.Is(err, unix.ENOTEMPTY):
		if filepath.Dir(name) != "." { // the others are found at the end
			r.Foreign = append(r.Foreign, d.Path(name))
		}
	case !errors.Is(err, fs.ErrNotExist):
		return files.WithRemedy(files.In(d.Root, err), Flag)
	}
	return nil
}
