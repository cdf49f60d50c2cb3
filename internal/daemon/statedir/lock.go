package statedir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

const (
	// LockName is the name of the file in the state directory that Lock locks.
	LockName = "lock"
	// PluginLocks is the name of that of the locks of plugin processes.
	PluginLocks = "plugins.lock"

	// A lock that another process holds is tried again after minLockPoll, then less and less
	// often up to maxLockPoll. A blocking flock would leak its thread when the wait ends.
	minLockPoll = 10 * time.Millisecond
	maxLockPoll = 500 * time.Millisecond

	// maxHolder bounds what is read from the lock file, in bytes.
	maxHolder = 512
)

// unknownHolder stands for a holder that has not written its name.
const unknownHolder = "a process that has not identified itself"

// errLockReplaced: the lock file is not the one that was opened any more.
var errLockReplaced = errors.New("the lock file was replaced")

// Holder identifies a process that holds locks, to people.
type Holder struct {
	// Pod is the name of its pod, with the namespace if that is known; empty outside a pod.
	Pod string
	// Started is when the process started.
	Started time.Time
}

// String describes this process as the holder, in one line of at most 400 bytes. In a pod that is,
// for example, "pod kube-system/delegated-ipam-x7k2p since 2026-11-22T15:04:05Z (PID 1)", because
// each has the same PID there and the node's host name; otherwise "PID 4711 on host worker-1 since
// 2026-11-22T15:04:05Z". The PID is from its PID namespace.
func (h Holder) String() string {
	since := h.Started.UTC().Format(time.RFC3339)
	if h.Pod != "" {
		return fmt.Sprintf("pod %s since %s (PID %d)", h.Pod, since, os.Getpid())
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("PID %d on host %s since %s", os.Getpid(), host, since)
}

// Lock opens the state directory and locks it for this process. The directory is created if it is missing, with mode
// 0700, which an existing one gets, too. While another process holds the lock, Lock waits until that one unlocks it
// or terminates (the kernel then releases it), or ctx ends. self describes this process to those that wait.
// onWait, if not nil, is called with the description of the holder when the wait begins and when the holder
// changes. Close of the result unlocks the directory. A symbolic link, a file, and a directory of another user are refused.
func Lock(ctx context.Context, path string, self Holder, onWait func(holder string)) (*Dir, error) {
	if path == "" {
		return nil, errEmptyPath
	}
	path = filepath.Clean(path)
	if err := create(path); err != nil {
		return nil, pathError(path, err)
	}
	d, err := Open(path)
	if err != nil {
		return nil, err
	}
	if err := d.restrictMode(); err != nil {
		return nil, errors.Join(pathError(path, err), d.Close())
	}
	if err := d.wait(ctx, onWait); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", d.Path(LockName), err), d.Close())
	}
	d.writeHolder(self)
	return d, nil
}

// wait locks the directory.
func (d *Dir) wait(ctx context.Context, onWait func(holder string)) (err error) {
	reported := ""
	for wait := minLockPoll; ; wait = min(2*wait, maxLockPoll) {
		if d.lock, err = d.tryLock(); err == nil {
			return nil
		}
		held, busy := errors.AsType[*heldError](err)
		if !busy && !errors.Is(err, errLockReplaced) {
			return files.WithRemedy(files.WithoutPath(err, d.Path(LockName)), Flag)
		}
		// A new holder writes its name a moment after it has the lock.
		named := busy && (held.holder != unknownHolder || wait > minLockPoll)
		if named && held.holder != reported && onWait != nil {
			reported = held.holder
			onWait(reported)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// heldError: another process holds the lock.
type heldError struct{ holder string }

func (e *heldError) Error() string { return "held by " + e.holder }

// tryLock opens the lock file and tries to lock it once.
func (d *Dir) tryLock() (*os.File, error) {
	if info, err := d.Lstat(LockName); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file (%s); expected a file, or nothing", info.Mode().Type())
	}
	failpoint.Reach(failpoint.LockOpening)
	file, err := d.OpenFile(LockName, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, fileMode)
	if err != nil {
		return nil, files.In(d.Root, err)
	}
	failpoint.Reach(failpoint.LockOpened)
	if err := d.flock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// flock locks an open lock file, if it is still the one that other processes open.
func (d *Dir) flock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return &heldError{readHolder(file)}
	}
	if err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	if named, err := d.Lstat(LockName); err != nil || !os.SameFile(opened, named) {
		return errLockReplaced
	}
	return nil
}

// writeHolder writes the description of the holder into the lock file, for waiting processes. It stays after the
// unlock, so that they never read an empty one. Errors are ignored, because it is not needed for the lock: the
// disk may be full.
func (d *Dir) writeHolder(h Holder) {
	text := fmt.Appendln(nil, h)
	failpoint.Reach(failpoint.LockNaming)
	if n, err := d.lock.WriteAt(text, 0); err == nil {
		failpoint.Reach(failpoint.LockNamed)
		_ = d.lock.Truncate(int64(n))
		failpoint.Reach(failpoint.LockCut)
	}
}

// readHolder returns what the holder wrote, as one line that is safe to log.
func readHolder(file *os.File) string {
	data, err := io.ReadAll(io.NewSectionReader(file, 0, maxHolder))
	line, _, _ := strings.Cut(string(data), "\n") // the rest of an earlier holder's name may follow
	text := strings.TrimSpace(logging.Printable(line))
	if err != nil || text == "" {
		return unknownHolder
	}
	return text
}
