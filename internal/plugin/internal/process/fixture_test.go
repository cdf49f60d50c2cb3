package process

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Getenv(escape) != "" {
		leaveGroup()
	}
	goleak.VerifyTestMain(m)
}

// script returns the command of a shell script.
func script(t *testing.T, text string) Command {
	t.Helper()
	c := Command{
		Path: filepath.Join(t.TempDir(), "plugin"), Env: []string{"PATH=" + os.Getenv("PATH")},
		Timeout: time.Minute, Grace: time.Minute,
	}
	if err := os.WriteFile(c.Path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}

// run starts a command and waits for its end.
func run(t *testing.T, c Command) (pid int, r Result) {
	t.Helper()
	p, err := c.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.PID(), p.Wait()
}

// newFifo returns the path of a FIFO, and a function that waits until a script writes to it.
func newFifo(t *testing.T) (path string, await func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() {
		if _, err := os.ReadFile(path); err != nil {
			t.Error(err)
		}
	}
}

// newLocks returns locks in a new directory, whose holders are terminated immediately.
func newLocks(t *testing.T) *IDLocks {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	return &IDLocks{Path: filepath.Join(t.TempDir(), "calls.lock"), Timeout: time.Millisecond, Grace: time.Minute, Log: log}
}

// wantEmpty fails the test if a process group has a member, also a zombie.
func wantEmpty(t *testing.T, group int) {
	t.Helper()
	if err := unix.Kill(-group, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the process group has members (%v), want none", err)
	}
}
