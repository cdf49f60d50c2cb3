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
)

// mustLock locks the container ID "id".
func mustLock(t *testing.T, l *IDLocks) *IDLock {
	t.Helper()
	lock, err := l.Lock(t.Context(), "id")
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// holdLock returns a process of our group that inherited the lock of "id", which this process no
// longer has.
func holdLock(t *testing.T, l *IDLocks) *exec.Cmd {
	t.Helper()
	lock := mustLock(t, l)
	holder := exec.Command("sleep", "3600")
	holder.ExtraFiles = []*os.File{lock.file}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	lock.file.Close() // without unlocking, as a killed process leaves it
	return holder
}

func TestTryLock(t *testing.T) {
	l := newLocks(t)
	lock := mustLock(t, l)
	if again, err := l.TryLock("id"); again != nil || err != nil {
		t.Errorf("got %v, %v for a locked ID; want nil", again, err)
	}
	lock.Unlock()
	again, err := l.TryLock("id")
	if again == nil || err != nil {
		t.Fatalf("got %v, %v after Unlock; want the lock", again, err)
	}
	again.Unlock()
	l.Path = filepath.Join(t.TempDir(), "no", "directory")
	if again, err := l.TryLock("id"); again != nil || err == nil {
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
			if err != nil {
				t.Fatal(err)
			}
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
	holder := holdLock(t, l)
	mustLock(t, l).Unlock()
	// That this process still runs shows that its group got no signal.
	if err := holder.Wait(); err == nil || holder.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the holder ended with %v, want SIGTERM", holder.ProcessState)
	}
}

func TestFindHolders(t *testing.T) {
	l := newLocks(t)
	holder := holdLock(t, l)
	lock, err := l.open("id")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.file.Close()
	if pids, err := findHolders(lock); err != nil || len(pids) != 1 || pids[0] != holder.Process.Pid {
		t.Errorf("got holders %v (%v), want %d", pids, err, holder.Process.Pid)
	}
	signalHolders([]int{holder.Process.Pid}, unix.SIGKILL)
	if err := holder.Wait(); err == nil {
		t.Error("the holder exited, want it killed")
	}
	if pids, err := findHolders(lock); err != nil || len(pids) != 0 {
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
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := errors.Join(os.Rename(path, path+".away"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
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

func TestLockOffset(t *testing.T) {
	seen := map[int64]string{}
	for _, id := range []string{"", "a", "b", "cilium-agent-health-0123456789abcdef", "cilium-agent-health-0123456789abcdee"} {
		at := lockOffset(id)
		if at < 0 || at+1 < at {
			t.Errorf("the offset of %q is %d, want space for one byte", id, at)
		}
		if other, ok := seen[at]; ok {
			t.Errorf("%q and %q have the same offset", id, other)
		}
		seen[at] = id
	}
}
