package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/hostlocal"
)

const (
	// lockFile is in each network's folder, and lockMode the mode with which host-local
	// makes it (plugins/ipam/host-local/backend/disk/lock.go; go-filemutex).
	lockFile = "lock"
	lockMode = 0o750
	// lockPause is how often a lock that somebody else has is asked for.
	lockPause = 10 * time.Millisecond
)

// lockStore takes host-local's own lock of a network, flock(2) on its file "lock",
// and waits for it until ctx ends: host-local holds it for a whole ADD or DEL, so
// that under it nothing is half written by a process that lives. To change
// something the lock is exclusive and its file is made if it is not there; to look
// it is shared, and without a file there is nobody to wait for. The caller calls
// the function that comes back.
func lockStore(ctx context.Context, dir *os.Root, change bool) (func(), error) {
	flags, how := os.O_RDONLY, unix.LOCK_SH
	if change {
		flags, how = os.O_RDONLY|os.O_CREATE, unix.LOCK_EX
	}
	file, err := hostlocal.OpenRegular(dir, lockFile, flags, lockMode)
	if errors.Is(err, fs.ErrNotExist) && !change {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("host-local's lock: %w", named(dir, err))
	}
	if err := waitForLock(ctx, file, how); err != nil {
		file.Close()
		return nil, fmt.Errorf("host-local's lock %s: %w", filepath.Join(dir.Name(), lockFile), err)
	}
	// The lock ends with the one file description that has it.
	return func() { file.Close() }, nil
}

// waitForLock asks again and again: a flock that waits could not be interrupted.
func waitForLock(ctx context.Context, file *os.File, how int) error {
	for {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		next := time.NewTimer(lockPause)
		select {
		case <-ctx.Done():
			next.Stop()
			return fmt.Errorf("another process holds it (lslocks shows which): %w", ctx.Err())
		case <-next.C:
		}
	}
}
