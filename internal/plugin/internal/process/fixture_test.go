package process

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
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
	harness.WriteProgram(t, c.Path, []byte("#!/bin/sh\n"+text+"\n"))
	return c
}

// run starts a command and waits for its end.
func run(t *testing.T, c Command) (pid int, r Result) {
	t.Helper()
	p, err := c.Start(nil)
	check.Must(t, err)
	return p.pid(), p.Wait()
}

// newFifo returns the path of a FIFO, and a function that waits until a script writes to it.
func newFifo(t *testing.T) (path string, await func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fifo")
	check.Must(t, unix.Mkfifo(path, 0o600))
	return path, func() {
		if _, err := os.ReadFile(path); err != nil {
			t.Error(err)
		}
	}
}

// newLocks returns locks in a new directory, whose holders are terminated immediately.
func newLocks(t *testing.T) *IDLocks {
	t.Helper()
	return &IDLocks{Path: filepath.Join(t.TempDir(), "calls.lock"), Timeout: time.Millisecond, Grace: time.Minute, Log: logging.Discard()}
}
