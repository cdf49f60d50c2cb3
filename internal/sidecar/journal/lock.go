package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

const (
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

// DirLock is the ownership of a state directory by this process.
type DirLock struct {
	file *os.File
}

// Lock locks the state directory for this process, and creates the directory if it is missing.
// While another process holds the lock, Lock waits until that one unlocks it or terminates (the
// kernel then releases it), or ctx ends. self describes this process to those that wait. onWait, if
// not nil, is called with the description of the holder when the wait begins and when the holder
// changes.
func Lock(ctx context.Context, dir string, self Holder, onWait func(holder string)) (*DirLock, error) {
	state, err := openStateDir(dir)
	if err != nil {
		return nil, err
	}
	defer state.Close()
	path := state.path(lockName)
	reported := ""
	for wait := minLockPoll; ; wait = min(2*wait, maxLockPoll) {
		file, err := tryLock(state)
		if err == nil {
			writeHolder(file, self)
			return &DirLock{file: file}, nil
		}
		held, busy := errors.AsType[*heldError](err)
		if !busy && !errors.Is(err, errLockReplaced) {
			return nil, fmt.Errorf("lock %s: %w", path, withRemedy(err, path))
		}
		// A new holder writes its name a moment after it has the lock.
		named := busy && (held.holder != unknownHolder || wait > minLockPoll)
		if named && held.holder != reported && onWait != nil {
			reported = held.holder
			onWait(withHolders(reported, held.lock))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w: %w", path, err, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// Unlock unlocks the directory.
func (l *DirLock) Unlock() error {
	// The holder's name stays until the next one overwrites it, so that waiting processes never
	// read an empty one.
	return l.file.Close()
}

// heldError: another process holds the lock.
type heldError struct {
	holder string
	// lock is the lock file.
	lock fs.FileInfo
}

func (e *heldError) Error() string { return "held by " + e.holder }

// tryLock opens the lock file and tries to lock it once.
func tryLock(state *directory) (*os.File, error) {
	if info, err := state.Lstat(lockName); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file (%s); expected a file, or nothing", info.Mode().Type())
	}
	failpoint.Reach(failpoint.LockOpening)
	file, err := state.OpenFile(lockName, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, fileMode)
	if err != nil {
		return nil, files.In(state.Root, err)
	}
	failpoint.Reach(failpoint.LockOpened)
	if err := flock(state, file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// flock locks an open lock file, if it is still the one that other processes open.
func flock(state *directory, file *os.File) error {
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return &heldError{readHolder(file), opened}
	}
	if err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	if named, err := state.Lstat(lockName); err != nil || !os.SameFile(opened, named) {
		return errLockReplaced
	}
	return nil
}

// writeHolder writes the description of the holder into the lock file, for waiting processes. Errors
// are ignored, because it is not needed for the lock: the disk may be full.
func writeHolder(file *os.File, h Holder) {
	text := fmt.Appendln(nil, h)
	failpoint.Reach(failpoint.LockNaming)
	if n, err := file.WriteAt(text, 0); err == nil {
		failpoint.Reach(failpoint.LockNamed)
		_ = file.Truncate(int64(n))
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

var (
	// holderPattern matches the description of a holder (Holder.String), ownPID its process ID.
	holderPattern = regexp.MustCompile(`^(pod .+ since .+ \(PID \d+\)|PID \d+ on host .+ since .+)$`)
	ownPID        = regexp.MustCompile(`PID (\d+)`)
)

// withHolders adds the visible processes that have the lock to the description of the holder, unless it
// is one of them. Others are children that a killed holder was starting: until its exec a child has a
// copy of each open file. In another PID namespace they are not visible, or have other IDs.
func withHolders(holder string, lock fs.FileInfo) string {
	pids := lockHolders(lock)
	named := ownPID.FindStringSubmatch(holder)
	if len(pids) == 0 || named != nil && slices.Contains(pids, named[1]) {
		return holder
	}
	return fmt.Sprintf("%s (now held by the process IDs %v)", holder, pids)
}

// lockHolders returns the IDs of the visible processes that have a flock of a file, by lines of fdinfo
// such as "lock:	1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF". On a file system that has another device
// there than in stat it finds none.
func lockHolders(lock fs.FileInfo) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/fdinfo/[0-9]*") // the pattern is valid
	stat := lock.Sys().(*syscall.Stat_t)
	inode := fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
	var pids []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended, or is another user's
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) == 9 && f[0] == "lock:" && f[2] == "FLOCK" && f[6] == inode {
				pids = append(pids, strings.Split(file, "/")[2])
			}
		}
	}
	return slices.Compact(pids)
}
