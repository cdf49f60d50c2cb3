package journal

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
	"unicode"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
)

const (
	// A lock that is held is asked for again after firstAsk, then ever more
	// rarely up to every lastAsk. A blocking flock would leave its thread behind
	// when the wait is given up.
	firstAsk = 10 * time.Millisecond
	lastAsk  = 500 * time.Millisecond

	// maxHolder bounds what is read from the lock file, in bytes.
	maxHolder = 256
)

// unnamed stands for a holder that has not written who it is.
const unnamed = "a process that has not said its PID"

// errLockReplaced: the lock file is not the one that was opened any more.
var errLockReplaced = errors.New("the lock file was replaced")

// DirLock is the ownership of a state folder by this process.
type DirLock struct {
	file *os.File
}

// Lock takes the state folder for this process, making the folder if it is
// missing. While another process has it, Lock waits until that one gives it up
// or dies (the kernel then frees it), or ctx ends; onWait is told who that is,
// first when the wait begins and again when the holder changes, such as
// "PID 4711 on host worker-1". The PID is the holder's own, in its PID namespace.
func Lock(ctx context.Context, dir string, onWait func(holder string)) (*DirLock, error) {
	state, err := openState(dir)
	if err != nil {
		return nil, err
	}
	defer state.Close()
	path := filepath.Join(dir, lockName)
	told := ""
	for wait := firstAsk; ; wait = min(2*wait, lastAsk) {
		file, err := tryLock(state)
		if err == nil {
			sayHolder(file)
			return &DirLock{file: file}, nil
		}
		held, busy := errors.AsType[*heldError](err)
		if !busy && !errors.Is(err, errLockReplaced) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// A new holder has the lock a moment before its name is there.
		named := busy && (held.holder != unnamed || wait > firstAsk)
		if named && held.holder != told && onWait != nil {
			told = held.holder
			onWait(told)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w: %w", path, err, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// Unlock gives the folder up.
func (l *DirLock) Unlock() error {
	// The text stays: the next holder writes its own over it, and who waits is
	// never told of nobody in between.
	return l.file.Close()
}

// heldError: another process has the lock.
type heldError struct{ holder string }

func (e *heldError) Error() string { return "held by " + e.holder }

// tryLock opens the lock file and asks for its lock once.
func tryLock(state *folder) (*os.File, error) {
	if info, err := state.Lstat(lockName); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no regular file (%s); expected a file, or nothing", info.Mode().Type())
	}
	failpoint.Reach(failpoint.LockOpening)
	file, err := state.OpenFile(lockName, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, fileMode)
	if err != nil {
		return nil, err
	}
	failpoint.Reach(failpoint.LockOpened)
	if err := flock(state, file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// flock locks an open lock file, and makes sure that it still is the one that
// the next process will open.
func flock(state *folder, file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return &heldError{holder: holderOf(file)}
	}
	if err != nil {
		return err
	}
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	if named, err := state.Lstat(lockName); err != nil || !os.SameFile(opened, named) {
		return errLockReplaced
	}
	return nil
}

// sayHolder writes into the lock file who has it, for those who wait. The lock
// counts, not this text: a full disk is no reason to give the folder up.
func sayHolder(file *os.File) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	text := fmt.Appendf(nil, "PID %d on host %s\n", os.Getpid(), host)
	failpoint.Reach(failpoint.LockNaming)
	if n, err := file.WriteAt(text, 0); err == nil {
		failpoint.Reach(failpoint.LockNamed)
		_ = file.Truncate(int64(n))
		failpoint.Reach(failpoint.LockCut)
	}
}

// holderOf is what the holder wrote, as one line that is safe to log.
func holderOf(file *os.File) string {
	data, err := io.ReadAll(io.NewSectionReader(file, 0, maxHolder))
	line, _, _ := strings.Cut(string(data), "\n") // what an earlier holder wrote may follow
	text := strings.TrimSpace(strings.Map(printable, line))
	if err != nil || text == "" {
		return unnamed
	}
	return text
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}
