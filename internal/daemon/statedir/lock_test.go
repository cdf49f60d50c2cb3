package statedir

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
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// holdLockEnv makes the test binary a process that locks the directory of that name, prints
// "holds", and unlocks it when its stdin ends.
const holdLockEnv = "JOURNAL_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdLockEnv); dir != "" {
		os.Exit(holdLock(dir))
	}
	os.Exit(m.Run())
}

func holdLock(dir string) int {
	l, err := Lock(context.Background(), dir, Holder{}, func(holder string) { fmt.Println("waits for", holder) })
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("holds")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	if l.Close() != nil {
		return 1
	}
	return 0
}

type holder struct {
	*exec.Cmd
	out *bufio.Reader
}

// startHolder starts a holder, which is killed at the end of the test.
func startHolder(t *testing.T, dir string) holder {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdLockEnv+"="+dir)
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe()
	check.Must(t, err)
	out, err := cmd.StdoutPipe()
	check.Must(t, err)
	check.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return holder{cmd, bufio.NewReader(out)}
}

// expect reads a line of the process and fails unless it contains want.
func (h holder) expect(t *testing.T, want string) {
	t.Helper()
	line, err := h.out.ReadString('\n')
	if !strings.Contains(line, want) {
		t.Fatalf("process %d prints %q, %v; want %q", h.Process.Pid, line, err, want)
	}
}

func lockDir(t *testing.T, dir string) *Dir {
	t.Helper()
	l, err := Lock(t.Context(), dir, Holder{}, nil)
	check.Must(t, err)
	return l
}

func TestLockOfKilledHolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first := startHolder(t, dir)
	first.expect(t, "holds")

	holders := make(chan string, 1)
	locked := make(chan error, 1)
	go func() {
		l, err := Lock(t.Context(), dir, Holder{}, func(holder string) { holders <- holder })
		if err == nil {
			err = l.Close()
		}
		locked <- err
	}()
	if got, want := <-holders, fmt.Sprintf("PID %d on host ", first.Process.Pid); !strings.HasPrefix(got, want) {
		t.Errorf("waits for %q, want %q", got, want)
	}
	select {
	case err := <-locked:
		t.Fatalf("two processes have the lock: %v", err)
	default:
	}
	check.Must(t, first.Process.Kill())
	check.Must(t, <-locked)
}

func TestUnlock(t *testing.T) {
	dir := t.TempDir()
	l := lockDir(t, dir)
	second := startHolder(t, dir)
	second.expect(t, fmt.Sprintf("waits for PID %d on host ", os.Getpid()))
	check.Must(t, l.Close())
	second.expect(t, "holds")
}

func TestLockFileReplaced(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir)
	check.Must(t, err)
	defer d.Close()
	file, err := d.OpenFile(LockName, os.O_RDWR|os.O_CREATE, fileMode)
	check.Must(t, err)
	defer file.Close()
	check.Must(t, d.Root.Remove(LockName))
	err = d.flock(file)
	check.True(t, errors.Is(err, errLockReplaced), "locked a file that no other process opens: %v", err)
}

func TestLockFileLink(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(t.TempDir(), "target")
	check.Must(t, os.Symlink(target, filepath.Join(dir, LockName)))
	_, err := Lock(t.Context(), dir, Holder{}, nil)
	check.Error(t, err)
	check.Absent(t, target)
}

func TestHolder(t *testing.T) {
	host, err := os.Hostname()
	check.Must(t, err)
	started := time.Date(2026, 11, 22, 16, 4, 5, 6, time.FixedZone("CET", 3600))
	for want, h := range map[string]Holder{
		fmt.Sprintf("PID %d on host %s since 2026-11-22T15:04:05Z", os.Getpid(), host):      {Started: started},
		fmt.Sprintf("pod kube-system/x-1 since 2026-11-22T15:04:05Z (PID %d)", os.Getpid()): {Pod: "kube-system/x-1", Started: started},
	} {
		check.Equal(t, "holder", h.String(), want)
	}

	// It is shown to a process that waits, whose context ends.
	dir := t.TempDir()
	me := Holder{Pod: strings.Repeat("n", 63) + "/" + strings.Repeat("p", 253), Started: started}
	l, err := Lock(t.Context(), dir, me, nil)
	check.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var got string
	_, err = Lock(ctx, dir, Holder{}, func(holder string) { got = holder; cancel() })
	check.Equal(t, "holder for which it waits", got, me.String())
	check.Error(t, err, "held by "+me.String())
	check.True(t, errors.Is(err, context.Canceled), "got %v; want %v", err, context.Canceled)
	check.Must(t, l.Close())
	again, err := Lock(t.Context(), dir, Holder{}, func(holder string) { t.Errorf("waits for %s after the unlock", holder) })
	check.Must(t, err)
	check.Must(t, again.Close())
}

func TestReadHolder(t *testing.T) {
	for content, want := range map[string]string{
		"PID 7 on host a\n":           "PID 7 on host a",
		"":                            "a process that has not identified itself",
		"PID 7\x1b[2J\ninjected line": `PID 7\x1b[2J`,
		"pod a/b since 2026-11-22T15:04:05Z (PID 1)\n": "pod a/b since 2026-11-22T15:04:05Z (PID 1)",
		strings.Repeat("x", 1000):                      strings.Repeat("x", maxHolder),
	} {
		file, err := os.CreateTemp(t.TempDir(), "")
		check.Must(t, err)
		_, err = file.WriteString(content)
		check.Must(t, err)
		check.Equal(t, "holder", readHolder(file), want)
		check.Must(t, file.Close())
	}
}

// A child between fork and exec has a copy of each descriptor of its parent: when the daemon is killed
// and the child hangs there, it keeps the lock.
//
//evidence:design/reliability the daemon is killed while a child hangs between fork and exec
func TestLockOfChild(t *testing.T) {
	dir := t.TempDir()
	l := lockDir(t, dir)
	child := exec.Command("sleep", "3600")
	child.ExtraFiles = []*os.File{l.lock}
	check.Must(t, child.Start())
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	check.Must(t, l.Close()) // as the end of this process does
	second := startHolder(t, dir)
	second.expect(t, fmt.Sprintf("waits for PID %d on host ", os.Getpid()))
	check.Must(t, child.Process.Kill())
	second.expect(t, "holds")
}
