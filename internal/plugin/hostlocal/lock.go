package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

const (
	// lockFile is in each network's directory, and lockMode is the mode with which host-local
	// creates it (plugins/ipam/host-local/backend/disk/lock.go; go-filemutex).
	lockFile = "lock"
	lockMode = 0o750
	// lockPollInterval is the time between two attempts to lock.
	lockPollInterval = 2 * time.Millisecond
)

// Lock acquires host-local's own lock of a network, flock(2) on its file "lock", and
// waits for it until ctx ends. host-local holds it for a whole ADD or DEL, so under it no
// file is partly written by a running process. For a change the lock is exclusive and its
// file is created; for a read it is shared, and without a file there is nothing to wait
// for. The caller calls the returned function to unlock. The error says so if ctx ended first.
func Lock(ctx context.Context, dir *os.Root, change bool) (unlock func(), err error) {
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

// Open opens the directory of a network. For a change it must not be a symbolic link: a user
// who may write to the data directory could have files of another directory removed. Links in the
// path of the data directory itself are the administrator's and are followed.
func Open(path string, change bool) (*os.Root, error) {
	dir, err := OpenDir(path)
	if err != nil || !change {
		return dir, err
	}
	opened, err := dir.Stat(".")
	named := opened
	if err == nil {
		named, err = os.Lstat(path)
	}
	if err == nil && !os.SameFile(opened, named) {
		err = fmt.Errorf("%s: a symbolic link, or replaced while it was opened; expected a directory, because changes do not follow symbolic links", path)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}
