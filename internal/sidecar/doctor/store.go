package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

// hostLocal is the only plugin type whose files are read.
const hostLocal = "host-local"

// store is the content of the lease files of a pool's network.
type store struct {
	leases []hostlocal.Lease
	// stale are the addresses whose files contain no container ID, and removed the addresses whose
	// stale files were removed.
	stale, removed []netip.Addr
	// unexpected are the addresses whose files are not ones that host-local creates.
	unexpected []netip.Addr
	// err is why the store could not be found, read or repaired.
	err error
}

// hasStore reports whether the store of the pool is known.
func (p pool) hasStore() bool {
	return p.known() && p.plugin.Plugin == hostLocal && filepath.IsAbs(p.stateDir.path)
}

// file returns the path of the file of an address.
func (p pool) file(ip netip.Addr) string { return filepath.Join(p.stateDir.path, ip.String()) }

// collectStore reads the store of a pool under host-local's own lock, for which it waits until ctx
// ends. With repair it removes files without a container ID. It reads no file of another plugin.
func (p *pool) collectStore(ctx context.Context, repair bool) {
	switch {
	case p.hasStore():
		p.store.err = p.store.collect(ctx, p.stateDir.path, repair)
	case p.known() && p.plugin.Plugin == hostLocal:
		p.store.err = fmt.Errorf("ipam.%s in %s is %q; expected an absolute path: a relative one depends on the working directory of the plugin", p.plugin.StateKey, p.network.File, p.stateDir.path)
	}
}

func (s *store) collect(ctx context.Context, path string, repair bool) error {
	dir, err := openStore(path, repair)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // host-local creates it with the first address
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	unlock, err := lockStore(ctx, dir, repair)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.read(dir); err != nil || !repair {
		return err
	}
	return s.removeStale(dir)
}

// openStore opens the directory of a network. For a change it must not be a symbolic link: a user
// who may write to the data directory could have files of another directory removed. Links in the
// path of the data directory itself are the administrator's and are followed.
func openStore(path string, change bool) (*os.Root, error) {
	dir, err := hostlocal.OpenDir(path)
	if err != nil || !change {
		return dir, err
	}
	opened, err := dir.Stat(".")
	named := opened
	if err == nil {
		named, err = os.Lstat(path)
	}
	if err == nil && !os.SameFile(opened, named) {
		err = fmt.Errorf("%s: a symbolic link, or replaced while it was opened; expected a directory, because a repair does not follow symbolic links", path)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

func (s *store) read(dir *os.Root) error {
	entries, err := hostlocal.List(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch {
		case errors.Is(e.Err, hostlocal.ErrUnexpected):
			s.unexpected = append(s.unexpected, e.IP)
		case errors.Is(e.Err, hostlocal.ErrEmpty):
			s.stale = append(s.stale, e.IP)
		case e.Err != nil:
			return e.Err
		default:
			s.leases = append(s.leases, e.Lease)
		}
	}
	return nil
}

// removeStale removes the stale files. They were read under the lock that is still held, so
// no host-local is about to write to one of them. The directory is synced: a power loss must
// not restore a file that was reported as removed.
func (s *store) removeStale(dir *os.Root) error {
	for len(s.stale) > 0 {
		name := s.stale[0].String()
		if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return files.AtPath(dir, name, err)
		}
		s.removed, s.stale = append(s.removed, s.stale[0]), s.stale[1:]
	}
	if len(s.removed) == 0 {
		return nil
	}
	self, err := dir.Open(".")
	if err == nil {
		err = errors.Join(self.Sync(), self.Close())
	}
	return files.AtPath(dir, ".", err)
}

const (
	// lockFile is in each network's directory, and lockMode is the mode with which host-local
	// creates it (plugins/ipam/host-local/backend/disk/lock.go; go-filemutex).
	lockFile = "lock"
	lockMode = 0o750
	// lockPollInterval is the time between two attempts to lock.
	lockPollInterval = 10 * time.Millisecond
)

// lockStore acquires host-local's own lock of a network, flock(2) on its file "lock", and
// waits for it until ctx ends. host-local holds it for a whole ADD or DEL, so under it no
// file is partly written by a running process. For a change the lock is exclusive and its
// file is created; for a read it is shared, and without a file there is nothing to wait
// for. The caller calls the returned function to unlock.
func lockStore(ctx context.Context, dir *os.Root, change bool) (unlock func(), err error) {
	file, err := openLock(ctx, dir, change)
	if errors.Is(err, fs.ErrNotExist) && !change {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("host-local's lock: %w", files.AtPath(dir, lockFile, err))
	}
	how := unix.LOCK_SH
	if change {
		how = unix.LOCK_EX
	}
	if err := pollLock(ctx, file, how); err != nil {
		file.Close()
		return nil, fmt.Errorf("host-local's lock %s: %w", filepath.Join(dir.Name(), lockFile), err)
	}
	// Closing the only file description of the lock releases it.
	return func() { file.Close() }, nil
}

// openLock opens the lock file, through no symbolic link, and creates a missing one if create is set.
func openLock(ctx context.Context, dir *os.Root, create bool) (*os.File, error) {
	for {
		file, err := files.OpenIn(dir, lockFile)
		if _, ok := errors.AsType[files.UnfitError](err); ok {
			return nil, fmt.Errorf("%w; expected the lock file of host-local", err)
		}
		if !create || !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
		// With O_EXCL a link that was created meanwhile is not followed either.
		file, err = dir.OpenFile(lockFile, os.O_RDONLY|os.O_CREATE|os.O_EXCL, lockMode)
		if !errors.Is(err, fs.ErrExist) || ctx.Err() != nil {
			return file, err
		}
	}
}

// pollLock locks by repeated attempts, because a blocking flock cannot be cancelled.
func pollLock(ctx context.Context, file *os.File, how int) error {
	for {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("held by another process (lslocks lists it): %w", ctx.Err())
		case <-time.After(lockPollInterval):
		}
	}
}
