package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Subdir is the name of the directory in the state directory of the daemon.
	Subdir = "spool"
	// DefaultPath is the directory on a host whose daemon has the default state directory.
	DefaultPath = "/var/lib/delegated-ipam/" + Subdir
	// Quarantine is the directory in it of the files that are not entries.
	Quarantine = "quarantine"

	// maxFiles and maxBytes limit the directory: a node has some hundred pods, and each may end many
	// times while the daemon is away.
	maxFiles = 4096
	maxBytes = 16 << 20

	temporarySuffix = ".tmp"
	// temporaryAge is after what time a temporary file is that of a killed writer.
	temporaryAge = 10 * time.Minute
	// lockWait limits the wait for another writer.
	lockWait     = 5 * time.Second
	lockInterval = 5 * time.Millisecond
)

// ErrFull is why no entry is added. The DEL then fails.
var ErrFull = errors.New("the spool is full")

// Dir is the open directory. Its files are accessed by its descriptor.
type Dir struct {
	path string
	file *os.File // for its lock
	root *os.Root
	// mu excludes other goroutines, which share the lock of the descriptor.
	mu sync.Mutex
}

// Open opens the directory of a path that has no symbolic link. It fails unless the directory is root's
// with mode 0700: another user could plant and remove entries. It creates nothing.
func Open(path string) (*Dir, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("spool %q: expected an absolute path", path)
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := -1, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Openat2(unix.AT_FDCWD, filepath.Clean(path), &how)
	}
	if err != nil {
		return nil, fmt.Errorf("spool %s: %w", path, err)
	}
	d := &Dir{path: path, file: os.NewFile(uintptr(fd), path)}
	if err = d.checkMode(); err == nil {
		d.root, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd)) // another directory may have its path by now
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spool %s: %w", path, err), d.file.Close())
	}
	return d, nil
}

const dirMode = 0o700

// checkMode returns an error unless the directory is root's with mode dirMode.
func (d *Dir) checkMode() error {
	var stat unix.Stat_t
	switch err := unix.Fstat(int(d.file.Fd()), &stat); {
	case err != nil:
		return err
	case stat.Uid != 0:
		return fmt.Errorf("owned by user %d; expected root", stat.Uid)
	case stat.Mode&0o7777 != dirMode:
		return fmt.Errorf("its mode is %04o; expected %04o", stat.Mode&0o7777, dirMode)
	}
	return nil
}

// ErrNotRoot is why a process has no spool: a runtime's plugin, which is root, uses root's only.
var ErrNotRoot = errors.New("spool: this process is not root")

// Create opens the directory in a state directory, created if it is missing. It fails with ErrNotRoot for
// another user.
func Create(stateDir string) (*Dir, error) {
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	path := filepath.Join(stateDir, Subdir)
	for _, dir := range []string{path, filepath.Join(path, Quarantine)} {
		if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("spool: %w", err)
		}
	}
	d, err := Open(path)
	if err != nil {
		return nil, err
	}
	// A power loss must not remove it with its entries.
	if err := errors.Join(d.file.Sync(), syncPath(stateDir)); err != nil {
		return nil, errors.Join(fmt.Errorf("spool %s: %w", path, err), d.Close())
	}
	return d, nil
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Close closes the directory.
func (d *Dir) Close() error { return errors.Join(d.root.Close(), d.file.Close()) }

// Path returns the path of the directory.
func (d *Dir) Path() string { return d.path }

// Check returns an error if plugins cannot leave DELs here: they open the path, which may name another directory by
// now, and refuse another owner or mode.
func (d *Dir) Check() error {
	opened, err := d.file.Stat()
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	if now, err := os.Lstat(d.path); err != nil || !os.SameFile(opened, now) {
		return fmt.Errorf("spool %s: the directory was moved or replaced; restart the daemon, which reads or creates the one at this path", d.path)
	}
	if err := d.checkMode(); err != nil {
		return fmt.Errorf("spool %s: %w", d.path, err)
	}
	return nil
}

// Put adds an entry durably. It replaces an older one of the same container interface. It fails with
// ErrFull above the limits; after any error the entry counts as not added.
func (d *Dir) Put(e Entry) error {
	content, err := e.encode()
	if err == nil {
		err = d.put(e.name(), content)
	}
	if err != nil {
		return fmt.Errorf("spool %s: %w", d.path, err)
	}
	return nil
}

func (d *Dir) put(name string, content []byte) (err error) {
	part := fmt.Sprintf(".%s.%d-%d%s", name, os.Getpid(), time.Now().UnixNano(), temporarySuffix)
	f, err := d.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = d.root.Remove(part)
		}
	}()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return d.locked(func() error {
		if err := d.checkRoom(int64(len(content)), name, part); err != nil {
			return err
		}
		if err := d.root.Rename(part, name); err != nil {
			return err
		}
		return d.file.Sync()
	})
}

// checkRoom returns ErrFull if a file of a size exceeds the limits, beside all but the files without.
func (d *Dir) checkRoom(size int64, without ...string) error {
	names, err := d.names(".")
	files, total := 1, size
	for _, other := range names {
		if info, err := d.root.Lstat(other); err == nil && !slices.Contains(without, other) {
			files, total = files+1, total+info.Size()
		}
	}
	if err == nil && (files > maxFiles || total > maxBytes) {
		err = fmt.Errorf("%w: at most %d files and %d bytes", ErrFull, maxFiles, maxBytes)
	}
	return err
}

// List returns the names of the entries and of foreign files, sorted, without temporary files.
func (d *Dir) List() ([]string, error) {
	all, err := d.names(".")
	var names []string
	for _, name := range all {
		if name != Quarantine && !strings.HasSuffix(name, temporarySuffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// Has reports whether a file has a name.
func (d *Dir) Has(name string) (bool, error) {
	_, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Read returns the entry of a name, and the file that has it, for Remove. The error is an *InvalidError
// for a file that is not an entry, and fs.ErrNotExist without a file.
func (d *Dir) Read(name string) (Entry, fs.FileInfo, error) {
	info, err := d.root.Lstat(name)
	if err != nil {
		return Entry{}, nil, err
	}
	if why := unfit(name, info); why != "" {
		return Entry{}, nil, &InvalidError{why}
	}
	content, err := d.root.ReadFile(name)
	if err != nil {
		return Entry{}, nil, err
	}
	e, err := decode(name, content)
	if err != nil {
		return Entry{}, nil, &InvalidError{err.Error()}
	}
	return e, info, nil
}

// InvalidError describes a file that is not an entry.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return e.Reason }

// unfit returns why a file is not an entry that root wrote; empty if it may be one.
func unfit(name string, info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !strings.HasSuffix(name, suffix):
		return "another name"
	case !info.Mode().IsRegular():
		return "not a regular file"
	case !ok || stat.Uid != 0:
		return "not owned by root"
	case stat.Nlink != 1:
		return fmt.Sprintf("%d links; expected 1", stat.Nlink)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Sprintf("its mode is %04o, which others may write", info.Mode().Perm())
	case info.Size() > maxEntry:
		return fmt.Sprintf("larger than %d bytes", maxEntry)
	}
	return ""
}

// Remove removes the file that Read has returned, durably. A file that has replaced it meanwhile stays.
func (d *Dir) Remove(name string, read fs.FileInfo) error {
	return d.locked(func() error {
		info, err := d.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, read) {
			return nil
		}
		if err = errors.Join(err, d.root.Remove(name)); err != nil {
			return err
		}
		return d.file.Sync()
	})
}

// MoveAside moves a file that is not an entry to quarantine.
func (d *Dir) MoveAside(name string) error {
	return d.locked(func() error {
		to := filepath.Join(Quarantine, fmt.Sprintf("%d-%s", time.Now().UnixNano(), name))
		if len(filepath.Base(to)) > unix.NAME_MAX {
			to = to[:len(Quarantine)+1+unix.NAME_MAX]
		}
		if err := d.root.Rename(name, to); err != nil {
			return err
		}
		return d.file.Sync()
	})
}

// Quarantined returns the number of files in quarantine.
func (d *Dir) Quarantined() (int, error) {
	names, err := d.names(Quarantine)
	return len(names), err
}

// RemoveTemporary removes the temporary files of killed writers.
func (d *Dir) RemoveTemporary() error {
	names, err := d.names(".")
	for _, name := range names {
		info, infoErr := d.root.Lstat(name)
		if strings.HasSuffix(name, temporarySuffix) && infoErr == nil && time.Since(info.ModTime()) > temporaryAge {
			err = errors.Join(err, d.root.Remove(name))
		}
	}
	return err
}

// locked calls change while no other writer changes the names in the directory.
func (d *Dir) locked(change func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for begin := time.Now(); ; time.Sleep(lockInterval) {
		err := unix.Flock(int(d.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Since(begin) > lockWait {
			return fmt.Errorf("its lock: %w", err)
		}
	}
	return errors.Join(change(), unix.Flock(int(d.file.Fd()), unix.LOCK_UN))
}

// names returns the names in the directory, or in one in it.
func (d *Dir) names(dir string) ([]string, error) {
	f, err := d.root.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}
