package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// mustLock locks the container ID "id".
func mustLock(t *testing.T, l *IDLocks) *IDLock {
	t.Helper()
	lock, err := l.Lock(t.Context(), "id")
	check.Must(t, err)
	return lock
}

func TestLock(t *testing.T) {
	l := newLocks(t)
	lock := mustLock(t, l)
	for _, id := range []string{"", "a", "b", "cilium-agent-health-0123456789abcdef", "cilium-agent-health-0123456789abcdee"} {
		other, err := l.Lock(t.Context(), id)
		if err != nil {
			t.Fatalf("got %v for %q; want the lock of another ID", err, id)
		}
		defer other.Unlock()
	}
	lock.Unlock()
	mustLock(t, l).Unlock()
	l.Path = filepath.Join(t.TempDir(), "no", "directory")
	if again, err := l.Lock(t.Context(), "id"); again != nil || err == nil {
		t.Errorf("got %v, %v without a directory; want an error", again, err)
	}
}

func TestHolderIsTerminated(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		grace  time.Duration
		exit   string
	}{
		"SIGTERM": {"", time.Hour, "signal: terminated"},
		"SIGKILL": {"trap '' TERM\n", 10 * time.Second, "signal: killed"}, // and time to end on a busy machine
	} {
		t.Run(name, func(t *testing.T) {
			l := newLocks(t)
			l.Grace = c.grace
			ready, awaitReady := newFifo(t)
			cmd := script(t, c.script+"echo >"+ready+"\nexec sleep 3600")
			cmd.Lock = mustLock(t, l)
			p, err := cmd.Start(nil)
			check.Must(t, err)
			awaitReady()
			cmd.Lock.file.Close() // without unlocking, as if we had been killed
			ended := make(chan Result)
			go func() { ended <- p.Wait() }()
			mustLock(t, l).Unlock()
			if r := <-ended; r.Exit.String() != c.exit {
				t.Errorf("the holder ended with %s, want %s", r.Exit, c.exit)
			}
		})
	}
}

func TestHolderInOwnGroup(t *testing.T) {
	l := newLocks(t)
	lock := mustLock(t, l)
	holder := exec.Command("sleep", "3600")
	holder.ExtraFiles = []*os.File{lock.file}
	check.Must(t, holder.Start())
	lock.file.Close() // without unlocking, as a killed process leaves it
	other, err := l.open("id", unix.F_WRLCK)
	check.Must(t, err)
	defer other.file.Close()
	if pids, err := findHolders(other); err != nil || len(pids) != 1 || pids[0] != holder.Process.Pid {
		t.Errorf("got holders %v (%v), want %d", pids, err, holder.Process.Pid)
	}
	mustLock(t, l).Unlock()
	// That this process still runs shows that its group got no signal.
	if err := holder.Wait(); err == nil || holder.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the holder ended with %v, want SIGTERM", holder.ProcessState)
	}
	if pids, err := findHolders(other); err != nil || len(pids) != 0 {
		t.Errorf("got holders %v (%v) after the end of the only one", pids, err)
	}
}

func TestLockHeldByThisProcess(t *testing.T) {
	l := newLocks(t)
	defer mustLock(t, l).Unlock()
	if _, err := l.Lock(t.Context(), "id"); err == nil || !strings.Contains(err.Error(), "same container ID") {
		t.Errorf("got %v, want an error that names the holder", err)
	}
}

func TestLockCancelled(t *testing.T) {
	l := newLocks(t)
	l.Timeout = time.Hour
	defer mustLock(t, l).Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Lock(ctx, "id"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cancellation", err)
	}
}

// The lock file is created in the open directory, not in one that replaced it.
func TestLockDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	check.Must(t, os.Mkdir(path, 0o700))
	dir, err := os.Open(path)
	check.Must(t, err)
	defer dir.Close()
	check.Must(t, errors.Join(os.Rename(path, path+".away"), os.Mkdir(path, 0o700)))
	l := newLocks(t)
	l.Path, l.Dir = filepath.Join(path, "calls.lock"), dir
	mustLock(t, l).Unlock()
	if created, err := os.ReadDir(path); err != nil || len(created) > 0 {
		t.Errorf("the directory in its place has %v, %v; want nothing", created, err)
	}
	if _, err := os.Stat(filepath.Join(path+".away", "calls.lock")); err != nil {
		t.Error(err)
	}
}
