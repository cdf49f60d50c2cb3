package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// earlierLife, set to a folder, makes the test binary run one ADD with the
// plugin there, and be killed in the middle of it.
const earlierLife = "DELEGATED_IPAM_TEST_EARLIER_LIFE"

func liveAnEarlierLife(bin string) error {
	r, err := New(Options{
		BinDirs: []string{bin}, LockFile: filepath.Join(bin, "calls.lock"), Profiles: embeddedProfiles, Timeout: time.Hour,
	})
	if err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(bin, "network.json"))
	if err != nil {
		return err
	}
	c, err := r.NewInvocation(context.Background(), call.Network{Name: "net", PluginConfig: json.RawMessage(config)}, "id", "owner")
	if err != nil {
		return err
	}
	_, err = r.Add(context.Background(), call.Call{ContainerID: "id", Invocation: c})
	return err
}

// orphan leaves a plugin behind that works on container ID "id", its parent
// killed, and returns the plugin's process ID.
func orphan(t *testing.T, b *bench, script string) int {
	t.Helper()
	// Orphans come to this process, which can then tell how they ended.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skipf("this system has no child subreaper: %v", err)
	}
	begun := b.fifo("begun")
	b.script(call.VerbAdd, script)
	if err := os.WriteFile(filepath.Join(b.bin, "network.json"), b.network.PluginConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), earlierLife+"="+b.bin)
	parent.Stderr = os.Stderr
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	begun()
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Fatal("the earlier life ended by itself, want it killed")
	}
	calls := b.calls(call.VerbAdd)
	return calls[len(calls)-1].PID
}

// ended waits for an orphan and returns how it ended.
func ended(t *testing.T, pid int) syscall.WaitStatus {
	t.Helper()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	return status
}

// Trap: a plugin process outlives us when we are killed: its ADD may land after the
// DEL of our next life.
func TestAPluginOfAnEarlierLifeIsWaitedFor(t *testing.T) {
	b := newBench(t)
	target := b.call("id")
	pid := orphan(t, b, `{"times":1,"announce":"begun","gate":"go"}`)
	lock := &idLock{file: openLockFile(t, b), at: position("id")}
	if ok, err := lock.try(); ok || err != nil {
		t.Fatalf("the lock was free (%v, %v), want it held by the plugin whose parent was killed", ok, err)
	}
	done := make(chan error)
	go func() { done <- b.run(call.VerbAdd, target) }()
	b.write("go", "")
	// The second ADD finds what the first one has allocated, so it came after it.
	wantError(t, <-done, call.Refused, "duplicate allocation")
	wantFinished(t, ended(t, pid))
}

// Trap: a plugin process outlives us when we are killed, and one that hangs would hold
// its attachment for ever.
func TestAPluginOfAnEarlierLifeThatDoesNotEndIsEnded(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		grace  time.Duration
		signal syscall.Signal
	}{
		"by SIGTERM if it obeys":           {`{"times":1,"announce":"begun","hang":true}`, time.Hour, syscall.SIGTERM},
		"by SIGKILL if it ignores SIGTERM": {`{"times":1,"ignoreTerm":true,"announce":"begun","hang":true}`, 2 * time.Second, syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			target := b.call("id")
			pid := orphan(t, b, c.script)
			b.runner.locks.patience, b.runner.locks.grace = time.Millisecond, c.grace
			if err := b.run(call.VerbAdd, target); err != nil {
				t.Error(err)
			}
			if status := ended(t, pid); !status.Signaled() || status.Signal() != c.signal {
				t.Errorf("the plugin of the earlier life ended with %v, want signal %v", status, c.signal)
			}
		})
	}
}

func TestAnOrphanOfAnotherContainerIDIsLeftAlone(t *testing.T) {
	b := newBench(t)
	target := b.call("another")
	pid := orphan(t, b, `{"times":1,"announce":"begun","gate":"go"}`)
	b.runner.locks.patience = time.Millisecond
	if err := b.run(call.VerbAdd, target); err != nil {
		t.Error(err)
	}
	b.write("go", "")
	wantFinished(t, ended(t, pid))
}

// wantFinished: nobody has ended the orphan. Its answer, when it comes to
// print it, finds no reader any more.
func wantFinished(t *testing.T, status syscall.WaitStatus) {
	t.Helper()
	if !status.Signaled() || status.Signal() != syscall.SIGPIPE {
		t.Errorf("the orphan ended with status %d, want it to have come to its answer (SIGPIPE)", status)
	}
}

func TestAHolderInOurOwnProcessGroupIsEndedAlone(t *testing.T) {
	b := newBench(t)
	b.runner.locks.patience = time.Millisecond
	lock, err := b.runner.locks.take(t.Context(), "id")
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command(os.Getenv(scriptedBinary), "hold", filepath.Join(b.scripts, "never"))
	holder.ExtraFiles = []*os.File{lock.file}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	// Closed without a word, as a process that is killed leaves it.
	lock.file.Close()
	again, err := b.runner.locks.take(t.Context(), "id")
	if err != nil {
		t.Fatal(err)
	}
	again.release()
	// That this process is still there to ask shows that its group was spared.
	if err := holder.Wait(); err == nil || holder.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the holder ended with %v, want SIGTERM", holder.ProcessState)
	}
}

func TestHoldersAreFoundByTheirOpenFiles(t *testing.T) {
	b := newBench(t)
	lock, err := b.runner.locks.take(t.Context(), "id")
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command(os.Getenv(scriptedBinary), "hold", filepath.Join(b.scripts, "never"))
	holder.ExtraFiles = []*os.File{lock.file}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	lock.file.Close()
	fresh := &idLock{file: openLockFile(t, b), at: lock.at}
	if pids, err := holdersOf(fresh); err != nil || len(pids) != 1 || pids[0] != holder.Process.Pid {
		t.Errorf("got holders %v (%v), want %d", pids, err, holder.Process.Pid)
	}
	endHolders([]int{holder.Process.Pid}, unix.SIGKILL)
	if err := holder.Wait(); err == nil {
		t.Error("the holder ended by itself, want it killed")
	}
	if pids, err := holdersOf(fresh); err != nil || len(pids) != 0 {
		t.Errorf("got holders %v (%v) after the end of the only one", pids, err)
	}
}

func TestACallOfThisLifeIsNotEndedByAnother(t *testing.T) {
	b := newBench(t)
	target := b.call("id")
	begun := b.fifo("begun")
	b.script(call.VerbAdd, `{"announce":"begun","gate":"go"}`)
	first := make(chan error)
	go func() { first <- b.run(call.VerbAdd, target) }()
	begun()
	second, err := New(b.opts)
	if err != nil {
		t.Fatal(err)
	}
	second.locks.patience = time.Millisecond
	wantError(t, second.Del(t.Context(), target), call.NotStarted, "another call of this process")
	b.write("go", "")
	if err := <-first; err != nil {
		t.Errorf("the call that had begun: %v", err)
	}
}

func TestTheWaitForALockEndsWithItsContext(t *testing.T) {
	b := newBench(t)
	target := b.call("id")
	lock, err := b.runner.locks.take(t.Context(), "id")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.release()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.runner.Del(ctx, target) }()
	cancel()
	wantError(t, <-done, call.NotStarted, "context canceled")
}

func TestALockFileThatCannotBeOpenedIsNotStarted(t *testing.T) {
	b := newBench(t, func(o *Options) { o.LockFile = filepath.Join(o.BinDirs[0], "no", "such", "folder") })
	wantError(t, b.run(call.VerbDel, b.call("id")), call.NotStarted, "lock file of plugin calls")
}

func TestTheLockFileIsMadeInTheOpenFolderAndNotInOneThatReplacedIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	folder, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := errors.Join(os.Rename(path, path+".away"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(o *Options) { o.LockFile, o.LockDir = filepath.Join(path, "calls.lock"), folder })
	lock, err := b.runner.locks.take(t.Context(), "id")
	if err != nil {
		t.Fatal(err)
	}
	lock.release()
	if made, err := os.ReadDir(path); err != nil || len(made) > 0 {
		t.Errorf("the folder that took its place has %v, %v; want nothing", made, err)
	}
	if _, err := os.Stat(filepath.Join(path+".away", "calls.lock")); err != nil {
		t.Error(err)
	}
}

func TestAHolderThatCannotBeSeenIsAnError(t *testing.T) {
	b := newBench(t)
	lock, err := b.runner.locks.take(t.Context(), "id")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.release()
	l := b.runner.locks
	l.patience = time.Millisecond
	if _, err := l.take(t.Context(), "id"); err == nil || !strings.Contains(err.Error(), "same container ID") {
		t.Errorf("got %v, want an error that says who has it", err)
	}
}

func TestContainerIDsHavePlacesOfTheirOwn(t *testing.T) {
	seen := map[int64]string{}
	for _, id := range []string{"", "a", "b", "cilium-agent-health-0123456789abcdef", "cilium-agent-health-0123456789abcdee"} {
		at := position(id)
		if at < 0 || at+1 < at {
			t.Errorf("position of %q is %d, want room for one byte", id, at)
		}
		if other, ok := seen[at]; ok {
			t.Errorf("%q and %q share a place", id, other)
		}
		seen[at] = id
	}
}
