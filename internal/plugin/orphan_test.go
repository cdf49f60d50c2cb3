package plugin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// previousRun, set to a plugin directory, makes the test binary a previous run of the daemon: it runs
// one ADD, and is killed during that.
const previousRun = "DELEGATED_IPAM_TEST_PREVIOUS_RUN"

func addInPreviousRun(bin string) error {
	r, err := New(Options{BinDirs: []string{bin}, LockFile: filepath.Join(bin, "calls.lock"), IfName: "eth0", Profiles: profile.Load, Timeout: time.Hour})
	if err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(bin, "network.json"))
	if err != nil {
		return err
	}
	inv, err := r.NewInvocation(context.Background(), networkOf("net", string(config)), "id", "owner")
	if err != nil {
		return err
	}
	_, err = r.Add(context.Background(), call.Call{Invocation: inv})
	return err
}

// orphan leaves a plugin that works on container ID "id", its parent killed, and returns its process
// ID.
func orphan(t *testing.T, f *fixture, script string) int {
	t.Helper()
	// Orphans become children of this process, which can then see how they end.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skipf("this system has no child subreaper: %v", err)
	}
	begun := f.fifo("begun")
	f.script(call.VerbAdd, script)
	check.Must(t, os.WriteFile(filepath.Join(f.bin, "network.json"), f.network.PluginConfig, 0o600))
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), previousRun+"="+f.bin)
	parent.Stderr = os.Stderr
	check.Must(t, parent.Start())
	begun()
	check.Must(t, parent.Process.Kill())
	if err := parent.Wait(); err == nil {
		t.Fatal("the previous run exited, want it killed")
	}
	return f.lastCall(call.VerbAdd).PID
}

// wantSignal waits for an orphan, and fails the test if it was not ended by the signal.
func wantSignal(t *testing.T, pid int, want syscall.Signal) {
	t.Helper()
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, 0, nil)
	check.Must(t, err)
	if !status.Signaled() || status.Signal() != want {
		t.Errorf("the plugin of the previous run ended with %v, want signal %v", status, want)
	}
}

// finished is how an orphan ends that nothing terminates: by printing its result, for which there is no
// reader any more.
const finished = syscall.SIGPIPE

// Trap: a plugin process outlives us when we are killed: its ADD may act after the DEL of our next
// run.
func TestOrphanIsAwaited(t *testing.T) {
	f := newFake(t)
	target := f.call("id")
	pid := orphan(t, f, `{"times":1,"announce":"begun","gate":"go"}`)
	f.wantLocked("id")
	done := make(chan error)
	go func() { done <- f.run(call.VerbAdd, target) }()
	f.write("go", "")
	// The second ADD finds what the first one has allocated, so it came after it.
	wantError(t, <-done, call.Refused, "duplicate allocation")
	wantSignal(t, pid, finished)
}
