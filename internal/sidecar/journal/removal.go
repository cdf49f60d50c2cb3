package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// lostAndFound is a directory that mkfs creates in a new file system.
const lostAndFound = "lost+found"

// RemoveOptions configure RemoveStateDir.
type RemoveOptions struct {
	Options
	// OtherFiles are the names of the files that other packages keep in the state directory.
	OtherFiles []string
	// Prepare removes what other packages keep in directories, under the lock and before anything else is
	// removed, and returns the removed paths. Its error refuses the removal; nil for nothing to do.
	Prepare func() (removed []string, err error)
	// DiscardQuarantine removes the files in quarantine/, which are otherwise a reason to refuse.
	DiscardQuarantine bool
	// KeepDir keeps the state directory itself, emptied: a mount point cannot be removed.
	KeepDir bool
	// Self identifies this process to others that wait for the lock.
	Self Holder
	// OnWait is passed to Lock.
	OnWait func(holder string)
}

// Removal is what RemoveStateDir did. All are paths, in the order of removal.
type Removal struct {
	// Removed are the files and directories that were removed.
	Removed []string
	// Foreign are files that are not the journal's, and stay.
	Foreign []string
}

// RemoveStateDir removes the state directory and exactly the files that this program made in it,
// under the directory's lock, for which it waits as Lock does. A missing directory is success.
//
// It refuses with an *InUseError while the journal may hold an address. It refuses a directory
// that is not a state directory (a symbolic link, of another user, with foreign files and without
// the lock of a sidecar) before it changes anything. Foreign files in a state directory stay, with
// the directory.
//
// The lock is removed last, so that after a crash another call completes the removal.
func RemoveStateDir(ctx context.Context, dir string, o RemoveOptions) (Removal, error) {
	if dir == "" {
		return Removal{}, errEmptyPath
	}
	dir = filepath.Clean(dir)
	r := &remover{dir: dir, options: o}
	names, err := r.recognize()
	if errors.Is(err, fs.ErrNotExist) {
		return Removal{}, nil
	}
	if err == nil && len(names) > 0 {
		err = r.removeFiles(ctx)
	}
	if err == nil && len(r.Foreign) == 0 && !o.KeepDir {
		err = r.removeDir()
	}
	return r.Removal, err
}

// remover removes one state directory.
type remover struct {
	dir     string
	options RemoveOptions
	Removal
}

// recognize returns the names in the directory, or why it is not a state directory: nothing in it
// may be changed then, not even the mode of the directory.
func (r *remover) recognize() ([]string, error) {
	d, err := openPath(r.dir)
	if err != nil {
		return nil, r.error(withRemedy(err, r.dir))
	}
	defer d.Close()
	names, err := namesIn(d)
	if err != nil {
		return nil, err
	}
	foreign := slices.IndexFunc(names, func(name string) bool { return !r.known(name) })
	if foreign < 0 {
		return names, nil
	}
	// The lock of a sidecar names a holder, and is removed last.
	text, err := readFile(d, lockName)
	if line, _, _ := strings.Cut(string(text), "\n"); err == nil && holderPattern.MatchString(line) {
		return names, nil
	}
	return nil, r.error(fmt.Errorf("not a state directory: no file %q that names a process of delegated-ipam, and %q is not a file of delegated-ipam; nothing is removed, so remove what remains, or name the right directory with --state-dir", lockName, names[foreign]))
}

// error adds the path of the state directory to an error that lacks it.
func (r *remover) error(err error) error { return fmt.Errorf("state directory %s: %w", r.dir, err) }

// known reports whether a file of this program has the name in the state directory.
func (r *remover) known(name string) bool {
	own := []string{attachmentsName, quarantineName, lockName, lostAndFound}
	return slices.Contains(own, name) || slices.Contains(r.options.OtherFiles, name)
}

// namesIn returns the names in a directory, sorted.
func namesIn(d *directory) ([]string, error) {
	entries, err := d.entries()
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// removeFiles removes every file of the journal, the lock last.
func (r *remover) removeFiles(ctx context.Context) (err error) {
	lock, err := Lock(ctx, r.dir, r.options.Self, r.options.OnWait)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	j, err := Open(r.dir, r.options.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if !lock.guards(j.state) {
		return r.error(errors.New("replaced while it was locked; nothing is removed, so run the command again"))
	}
	err = j.inUse(r.options.DiscardQuarantine)
	if _, ok := errors.AsType[*InUseError](err); ok {
		return r.error(err)
	}
	if err != nil {
		return err
	}
	if r.options.Prepare != nil {
		removed, err := r.options.Prepare()
		r.Removed = append(r.Removed, removed...)
		if err != nil {
			return err
		}
	}
	if err := r.removeRecords(j); err != nil {
		return err
	}
	return r.removeRest(j.state)
}

// guards reports whether the lock belongs to an open state directory.
func (l *DirLock) guards(state *directory) bool {
	locked, err := l.file.Stat()
	if err != nil {
		return false
	}
	named, err := state.Lstat(lockName)
	return err == nil && os.SameFile(locked, named)
}

// removeRecords removes attachments/ and quarantine/ with their files. inUse has found no record in
// use, and Load has moved everything else to quarantine/.
func (r *remover) removeRecords(j *Journal) error {
	for _, d := range []*directory{j.attachments, j.quarantine} {
		names, err := namesIn(d)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.remove(d, name); err != nil {
				return err
			}
		}
		if err := r.remove(j.state, filepath.Base(d.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeRest removes the other files. An entry that is not a regular file is
// foreign, regardless of its name.
func (r *remover) removeRest(state *directory) error {
	for _, name := range append(slices.Clone(r.options.OtherFiles), lockName) {
		info, err := state.lstat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue // the second is found below
		}
		if err == nil {
			err = r.remove(state, name)
		}
		if err != nil {
			return err
		}
	}
	left, err := namesIn(state)
	for _, name := range left {
		if name != lostAndFound || !r.options.KeepDir {
			r.Foreign = append(r.Foreign, filepath.Join(r.dir, name))
		}
	}
	return err
}

// remove removes a file or an empty directory; of a symbolic link the link itself. A directory that
// is not empty is foreign.
func (r *remover) remove(in *directory, name string) error {
	path := in.path(name)
	failpoint.Reach(failpoint.UninstallRemoving)
	err := in.Remove(name)
	failpoint.Reach(failpoint.UninstallRemoved)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENOTEMPTY):
		if in.Name() != r.dir { // removeRest finds what stays in the state directory
			r.Foreign = append(r.Foreign, path)
		}
		return nil
	case err != nil:
		return files.WithRemedy(files.In(in.Root, err), stateDirFlag)
	}
	r.Removed = append(r.Removed, path)
	return nil
}

// removeDir removes the empty state directory. What replaced it stays: a symbolic link and a
// directory with files cannot be removed so.
func (r *remover) removeDir() error {
	failpoint.Reach(failpoint.UninstallRemoving)
	err := unix.Rmdir(r.dir)
	failpoint.Reach(failpoint.UninstallRemoved)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EBUSY) { // the second for a mount point
		return nil
	}
	if err != nil {
		return r.error(fmt.Errorf("the empty directory cannot be removed: %w", files.WithRemedy(err, stateDirFlag)))
	}
	r.Removed = append(r.Removed, r.dir)
	return nil
}
