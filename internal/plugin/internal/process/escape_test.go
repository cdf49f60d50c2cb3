package process

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// escape in the environment makes this test binary a plugin that leaves its process group for ours,
// ignores SIGTERM, prints too much and runs until it is killed.
const escape = "PROCESS_TEST_ESCAPE"

// leaveGroup is the main function of that plugin.
func leaveGroup() {
	parentGroup, err := unix.Getpgid(os.Getppid())
	if err == nil {
		err = unix.Setpgid(0, parentGroup)
	}
	if err != nil {
		panic(err)
	}
	signal.Ignore(unix.SIGTERM)
	_, _ = os.Stdout.Write(make([]byte, MaxStdout+1)) // more than is accepted
	for {
		time.Sleep(time.Hour)
	}
}

// A plugin that has left its process group gets no signal that is sent to the group.
func TestEscapedProcessIsTerminated(t *testing.T) {
	c := script(t, escape+"=1 exec "+os.Args[0])
	c.Grace = 10 * time.Millisecond
	if _, r := run(t, c); !r.TooMuchOutput || r.Unended || r.Exit.String() != "signal: killed" {
		t.Errorf("got %+v (%s), want it killed for its output, outside of its group", r, r.Exit)
	}
}

// A process that may not be signalled is abandoned, and keeps its lock until its end.
//
//evidence:operate/security it hangs, ignores SIGTERM, leaves its process group, or a child that keeps its output open
func TestUnendedProcess(t *testing.T) {
	const inner = "PROCESS_TEST_WITHOUT_CAP_KILL"
	if os.Getenv(inner) == "" {
		if os.Geteuid() != 0 {
			t.Skip("only root can start a process that it may not signal")
		}
		cmd := exec.Command("setpriv", "--bounding-set=-kill", "--inh-caps=-kill", os.Args[0], "-test.run=^TestUnendedProcess$", "-test.v")
		cmd.Env = append(os.Environ(), inner+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestUnendedProcess") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	locks := newLocks(t)
	lock := mustLock(t, locks)
	gate, _ := newFifo(t)
	c := script(t, "exec 5<>"+gate+"\nexec setpriv --reuid=65534 --clear-groups sh -c 'head -c 2000000 /dev/zero; read line <&5'")
	c.Grace, c.Lock = time.Millisecond, lock
	_, r := run(t, c)
	if !r.Unended || !r.TooMuchOutput {
		t.Fatalf("got %+v, want a process that is not ended", r)
	}
	lock.Unlock()
	if _, err := locks.Lock(t.Context(), "id"); err == nil || !strings.Contains(err.Error(), "could not be terminated; end it by hand") {
		t.Fatalf("the lock: %v, want that the process still has it", err)
	}

	check.Must(t, os.WriteFile(gate, []byte("end\n"), 0))
	for lock = nil; lock == nil; { // until the process has ended
		lock, _ = locks.Lock(t.Context(), "id")
	}
	lock.Unlock()
	if _, ok := locks.unended.Load(lockOffset("id")); ok {
		t.Error("the process is still listed after its end")
	}
}
