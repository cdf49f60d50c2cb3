package journal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// holdVariable makes the test binary a process that takes the lock of the folder
// it names, says so, and keeps it until its stdin ends.
const holdVariable = "JOURNAL_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdVariable); dir != "" {
		os.Exit(hold(dir))
	}
	os.Exit(m.Run())
}

func hold(dir string) int {
	l, err := Lock(context.Background(), dir, func(holder string) { fmt.Println("waits for", holder) })
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("holds")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	if l.Unlock() != nil {
		return 1
	}
	return 0
}

// holder starts such a process; it is killed at the end at the latest.
type holder struct {
	*exec.Cmd
	out *bufio.Reader
}

func startHolder(t *testing.T, dir string) holder {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdVariable+"="+dir)
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return holder{cmd, bufio.NewReader(out)}
}

func (h holder) expect(t *testing.T, want string) {
	t.Helper()
	line, err := h.out.ReadString('\n')
	if !strings.Contains(line, want) {
		t.Fatalf("process %d says %q, %v; want %q", h.Process.Pid, line, err, want)
	}
}

func TestASecondProcessWaitsForTheLockAndTakesItOverFromOneThatIsKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first := startHolder(t, dir)
	first.expect(t, "holds")

	told := make(chan string, 1)
	locked := make(chan error, 1)
	go func() {
		l, err := Lock(t.Context(), dir, func(holder string) { told <- holder })
		if err == nil {
			err = l.Unlock()
		}
		locked <- err
	}()
	if got, want := <-told, fmt.Sprintf("PID %d on host ", first.Process.Pid); !strings.HasPrefix(got, want) {
		t.Errorf("waits for %q, want %q", got, want)
	}
	select {
	case err := <-locked:
		t.Fatalf("locked beside its holder: %v", err)
	default:
	}
	must(t, first.Process.Kill())
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
}

func TestAnotherProcessWaitsForUsAndGoesOnAfterUnlock(t *testing.T) {
	dir := t.TempDir()
	l, err := Lock(t.Context(), dir, nil)
	must(t, err)
	second := startHolder(t, dir)
	second.expect(t, fmt.Sprintf("waits for PID %d on host ", os.Getpid()))
	must(t, l.Unlock())
	second.expect(t, "holds")
}

func TestTheWaitEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	l, err := Lock(t.Context(), dir, nil)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Lock(ctx, dir, func(string) { cancel() })
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), fmt.Sprintf("held by PID %d", os.Getpid())) {
		t.Errorf("error %v", err)
	}
	must(t, l.Unlock())
	again, err := Lock(t.Context(), dir, func(holder string) { t.Errorf("waits for %s after the lock was given up", holder) })
	must(t, err)
	must(t, again.Unlock())
}

func TestALockFileThatWasReplacedDoesNotCount(t *testing.T) {
	dir := t.TempDir()
	state, err := openState(dir)
	must(t, err)
	defer state.Close()
	file, err := state.OpenFile(lockName, os.O_RDWR|os.O_CREATE, fileMode)
	must(t, err)
	defer file.Close()
	must(t, state.Remove(lockName))
	if err := flock(state, file); !errors.Is(err, errLockReplaced) {
		t.Errorf("locked a file that nobody else would open: %v", err)
	}
}

func TestALockFileThatIsNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(t.TempDir(), "target")
	must(t, os.Symlink(target, filepath.Join(dir, lockName)))
	if _, err := Lock(t.Context(), dir, nil); err == nil {
		t.Error("locked through a symbolic link")
	}
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link's target was made (%v)", err)
	}
}

func TestTheHoldersTextIsSafeToLog(t *testing.T) {
	for content, want := range map[string]string{
		"PID 7 on host a\n":       "PID 7 on host a",
		"":                        "a process that has not said its PID",
		"PID 7\x1b[2J\nroot fell": "PID 7 [2J",
		strings.Repeat("x", 1000): strings.Repeat("x", maxHolder),
	} {
		file, err := os.CreateTemp(t.TempDir(), "")
		must(t, err)
		_, err = file.WriteString(content)
		must(t, err)
		if got := holderOf(file); got != want {
			t.Errorf("%q became %q, want %q", content, got, want)
		}
		must(t, file.Close())
	}
}
