package delegate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
)

// idLocks are locks on container IDs that plugin processes inherit. When we
// are killed, a plugin that goes on keeps its lock: whoever works on that ID in
// the next life first waits for it (docs/how-it-works.md, Running a
// plugin, "The inherited lock").
type idLocks struct {
	// folder is the open folder of the lock file; nil to open it by its path.
	folder *os.File
	// path is the lock file. Each ID is one byte of it, far beyond its end.
	path string
	// patience is how long a holder may go on before it is ended.
	patience time.Duration
	// grace is the time between SIGTERM and SIGKILL.
	grace time.Duration
	log   logrus.FieldLogger
}

// idLock is a lock that is held. The file is for the plugin to inherit.
type idLock struct {
	file *os.File
	at   int64
}

// position maps a container ID to its byte: 62 bits of its hash, so that it
// stays positive with room for the length.
func position(containerID string) int64 {
	h := sha256.Sum256([]byte(containerID))
	return int64(binary.BigEndian.Uint64(h[:8]) >> 2)
}

// take returns the lock of a container ID. While someone else has it, it waits
// for patience, then sends SIGTERM and after grace SIGKILL to the holder. The
// error names the processes that hold it still.
func (l idLocks) take(ctx context.Context, containerID string) (*idLock, error) {
	lock, ok, err := l.tryTake(containerID)
	if err == nil && !ok {
		err = l.insist(ctx, lock, containerID)
		if err != nil {
			lock.file.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// tryTake returns the lock of a container ID, and whether it is ours; else somebody
// has it.
func (l idLocks) tryTake(containerID string) (lock *idLock, ok bool, err error) {
	// A file description of its own: the lock belongs to it, and a lock that
	// two operations shared would exclude neither.
	file, err := l.open()
	if err != nil {
		return nil, false, fmt.Errorf("lock file of plugin calls: %w", err)
	}
	lock = &idLock{file: file, at: position(containerID)}
	if ok, err = lock.try(); err != nil {
		file.Close()
		return nil, false, err
	}
	return lock, ok, nil
}

// open opens the lock file, and makes it if it is not there. os.OpenFile would ask
// the runtime's poller whether the file can be waited for, and undo that again when
// the plugin is to inherit it: five system calls in each call of a plugin.
func (l idLocks) open() (*os.File, error) {
	folder, name := unix.AT_FDCWD, l.path
	if l.folder != nil {
		folder, name = int(l.folder.Fd()), filepath.Base(l.path)
	}
	for {
		failpoint.Reach(failpoint.PluginLockOpening)
		fd, err := unix.Openat(folder, name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &fs.PathError{Op: "open", Path: l.path, Err: err}
		default:
			failpoint.Reach(failpoint.PluginLockOpened)
			return os.NewFile(uintptr(fd), l.path), nil
		}
	}
}

// insist waits for the holder, then ends it.
func (l idLocks) insist(ctx context.Context, lock *idLock, containerID string) error {
	ok, err := lock.wait(ctx, l.patience)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if ok || err != nil {
			return err
		}
		holders, findErr := holdersOf(lock)
		if findErr != nil {
			return findErr
		}
		l.log.WithFields(logrus.Fields{"containerID": containerID, "holders": holders, "signal": sig.String()}).
			Warn("a plugin process of an earlier life still works on the container ID and is ended")
		endHolders(holders, sig)
		ok, err = lock.wait(ctx, l.grace)
	}
	if ok || err != nil {
		return err
	}
	holders, err := holdersOf(lock)
	if err != nil {
		return err
	}
	who := fmt.Sprintf("process IDs %v", holders)
	if len(holders) == 0 {
		who = "not to be seen in /proc: of another PID namespace or user"
	}
	return fmt.Errorf("container ID %s is still worked on by another plugin process (%s) that could not be ended; end it by hand", containerID, who)
}

// try takes the lock unless someone has it.
func (l *idLock) try() (bool, error) {
	err := l.set(unix.F_WRLCK)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// wait tries again, less and less often, until limit has passed.
func (l *idLock) wait(ctx context.Context, limit time.Duration) (bool, error) {
	end := time.NewTimer(limit)
	defer end.Stop()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		next := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			next.Stop()
			return false, fmt.Errorf("waiting for a plugin process of an earlier life: %w", ctx.Err())
		case <-end.C:
			next.Stop()
			return l.try()
		case <-next.C:
		}
		if ok, err := l.try(); ok || err != nil {
			return ok, err
		}
	}
}

// release unlocks by word and not only by closing: a process that the plugin
// has left behind still has the same file description.
func (l *idLock) release() {
	// Unlocking one's own lock fails only without memory to split the range,
	// and closing is then the best that is left.
	_ = l.set(unix.F_UNLCK)
	l.file.Close()
}

func (l *idLock) set(kind int16) error {
	lk := unix.Flock_t{Type: kind, Whence: unix.SEEK_SET, Start: l.at, Len: 1}
	if err := unix.FcntlFlock(l.file.Fd(), unix.F_OFD_SETLK, &lk); err != nil {
		return fmt.Errorf("lock file of plugin calls %s: %w", l.file.Name(), err)
	}
	return nil
}
