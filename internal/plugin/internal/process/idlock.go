package process

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

// IDLocks are locks on container IDs that plugin processes inherit. When this process is killed, a
// plugin that continues keeps its lock: after a restart a call on that ID first waits for it
// (docs/design/how-it-works.md, Running a plugin, "The inherited lock"). It is safe for concurrent use.
type IDLocks struct {
	// Dir is the open directory of the lock file; nil to open the file by its path.
	Dir *os.File
	// Path is the lock file. Each ID locks one byte, far beyond its end.
	Path string
	// Timeout is how long a process of an earlier call may continue before it is terminated.
	Timeout time.Duration
	// Grace is the time from SIGTERM to SIGKILL.
	Grace time.Duration
	// Log gets a warning for each signal.
	Log logrus.FieldLogger

	// unended has the process IDs of processes that could not be ended, by the byte that each has
	// locked.
	unended sync.Map
}

// IDLock is the lock of one container ID. Processes inherit its open file.
type IDLock struct {
	file *os.File
	// offset is the byte that is locked, kind F_WRLCK or F_RDLCK.
	offset int64
	kind   int16
	locks  *IDLocks
	// left reports that Unlock leaves the lock to the processes that inherited it.
	left bool
}

// Lock locks a container ID. While a process of a previous run, or of an earlier call with an unknown
// outcome, has the lock, it waits for Timeout, then sends it SIGTERM and after Grace SIGKILL. It fails
// when ctx is done, when another call of this process has the lock, when the holder does not end, and
// immediately when that is a process that this one could not end; the error names its process IDs.
func (l *IDLocks) Lock(ctx context.Context, containerID string) (*IDLock, error) {
	return l.lock(ctx, containerID, unix.F_WRLCK)
}

// Await waits as Lock does, and takes no lock.
func (l *IDLocks) Await(ctx context.Context, containerID string) error {
	lock, err := l.lock(ctx, containerID, unix.F_RDLCK)
	if err == nil {
		lock.Unlock()
	}
	return err
}

func (l *IDLocks) lock(ctx context.Context, containerID string, kind int16) (*IDLock, error) {
	lock, err := l.open(containerID, kind)
	if err != nil {
		return nil, err
	}
	locked, err := lock.try()
	if err == nil && !locked {
		err = l.evictHolder(ctx, lock, containerID)
	}
	if err != nil {
		lock.file.Close()
		return nil, err
	}
	return lock, nil
}

// open returns the lock of a container ID, not locked. The lock belongs to its open file description:
// two operations that shared one would both have the lock.
func (l *IDLocks) open(containerID string, kind int16) (*IDLock, error) {
	file, err := l.openFile()
	if err != nil {
		return nil, fmt.Errorf("lock file of plugin calls: %w", err)
	}
	return &IDLock{file: file, offset: lockOffset(containerID), kind: kind, locks: l}, nil
}

func (l *IDLocks) openFile() (*os.File, error) {
	dir, name := unix.AT_FDCWD, l.Path
	if l.Dir != nil {
		dir, name = int(l.Dir.Fd()), filepath.Base(l.Path)
	}
	for {
		failpoint.Reach(failpoint.PluginLockOpening)
		fd, err := unix.Openat(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &fs.PathError{Op: "open", Path: l.Path, Err: err}
		default:
			failpoint.Reach(failpoint.PluginLockOpened)
			return os.NewFile(uintptr(fd), l.Path), nil
		}
	}
}

// lockOffset maps a container ID to its byte: 62 bits of its hash, so that the offset plus the
// length stays positive.
func lockOffset(containerID string) int64 {
	h := sha256.Sum256([]byte(containerID))
	return int64(binary.BigEndian.Uint64(h[:8]) >> 2)
}

// evictHolder waits for the holder of a lock, then terminates it, and takes the lock.
func (l *IDLocks) evictHolder(ctx context.Context, lock *IDLock, containerID string) error {
	if pid, ok := l.unended.Load(lock.offset); ok {
		return fmt.Errorf("plugin process %d still works on container ID %s and could not be terminated; end it by hand, or reboot the node", pid, containerID)
	}
	locked, err := lock.retry(ctx, l.Timeout)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if locked || err != nil {
			return err
		}
		holders, findErr := findHolders(lock)
		if findErr != nil {
			return findErr
		}
		logging.ForRequest(ctx, l.Log).WithFields(logrus.Fields{"containerID": containerID, "holders": holders, "signal": sig.String()}).
			Warn("a plugin process of an earlier call still works on the container ID; terminating it")
		signalHolders(holders, sig)
		locked, err = lock.retry(ctx, l.Grace)
	}
	if locked || err != nil {
		return err
	}
	holders, err := findHolders(lock)
	if err != nil {
		return err
	}
	who := fmt.Sprintf("process IDs %v", holders)
	if len(holders) == 0 {
		who = "not visible in /proc: of another PID namespace or user"
	}
	return fmt.Errorf("another plugin process (%s) still works on container ID %s and could not be terminated; end it by hand", who, containerID)
}

// try takes the lock unless another open file has it.
func (l *IDLock) try() (bool, error) {
	err := l.set(l.kind)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err == nil {
		l.locks.unended.Delete(l.offset)
	}
	return err == nil, err
}

// abandon leaves the lock to a process that could not be ended.
func (l *IDLock) abandon(pid int) {
	l.left = true
	l.locks.unended.Store(l.offset, pid)
}

// retry tries again, with growing pauses, until timeout has elapsed.
func (l *IDLock) retry(ctx context.Context, timeout time.Duration) (bool, error) {
	end := time.Now().Add(timeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("waiting for a plugin process of an earlier call: %w", ctx.Err())
		case <-time.After(min(pause, time.Until(end))):
		}
		if locked, err := l.try(); locked || err != nil || !time.Now().Before(end) {
			return locked, err
		}
	}
}

// Unlock releases the lock. It unlocks explicitly before it closes the file: a daemon that the plugin
// has left behind may still have the same open file description. After a call with an unknown outcome
// such a process keeps the lock, because it may still do the work of the call. A nil lock is none.
func (l *IDLock) Unlock() {
	if l == nil {
		return
	}
	if !l.left {
		// Unlocking one's own lock fails only without memory to split the range. Closing is then all
		// that is left.
		_ = l.set(unix.F_UNLCK)
	}
	l.file.Close()
}

func (l *IDLock) set(kind int16) error {
	lk := unix.Flock_t{Type: kind, Whence: unix.SEEK_SET, Start: l.offset, Len: 1}
	if err := unix.FcntlFlock(l.file.Fd(), unix.F_OFD_SETLK, &lk); err != nil {
		return fmt.Errorf("lock file of plugin calls %s: %w", l.file.Name(), err)
	}
	return nil
}
