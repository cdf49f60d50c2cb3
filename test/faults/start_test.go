package faults

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestStartWithoutStateDir(t *testing.T) {
	t.Parallel()
	st := newStats(t, storage)
	tests := map[string]struct {
		spoil func(t *testing.T, dir string) (undo func())
		err   string
	}{
		"replaced by a file": {func(t *testing.T, dir string) func() {
			harness.Must(t, os.WriteFile(dir, nil, 0o600))
			return func() { harness.Must(t, os.Remove(dir)) }
		}, "not a directory"},
		"replaced by a symlink": {func(t *testing.T, dir string) func() {
			harness.Must(t, os.Symlink(t.TempDir(), dir))
			return func() { harness.Must(t, os.Remove(dir)) }
		}, "symbolic link"},
		"read-only": {func(t *testing.T, dir string) func() {
			mountSmall(t, dir)
			harness.Must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			return func() { harness.Must(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "")) }
		}, "read-only file system"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st.countCase(t)
			n := nodeWith(t)
			undo := tt.spoil(t, n.StateDir)
			s := n.Launch(t)
			wantStartFailure(t, s, tt.err)

			undo()
			s = n.Start(t)
			s.AllocateFor(t, "router")
			s.WaitConsistent(t)
		})
	}
}

// The record may be intact, so its owner must not lose its addresses.
//
//evidence:design/reliability unreadable record at start (permission)
//evidence:design/reliability I/O error on read at start, or another error of the system
func TestStartWithUnreadableRecord(t *testing.T) {
	t.Parallel()
	st := newStats(t, storage)
	tests := map[string]struct {
		spoil func(t *testing.T, n *harness.Node, record string) (undo func())
		err   string
	}{
		"permission": {func(t *testing.T, n *harness.Node, record string) func() {
			dropCapabilities(t, n)
			harness.Must(t, os.Chmod(record, 0))
			return func() { harness.Must(t, os.Chmod(record, 0o600)) }
		}, "permission denied"},
		"I/O error": {failReads, "input/output error"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st.countCase(t)
			n := nodeWith(t)
			s := n.Start(t)
			router := s.AllocateFor(t, "router")
			health := s.AllocateFor(t, "health")
			record := s.Attachment(t, "router").ContainerID + ".json"
			s.Stop(t)
			before := n.Leases(t)

			undo := tt.spoil(t, n, filepath.Join(attachments(n), record))
			s = n.Launch(t)
			wantStartFailure(t, s, record, tt.err, "start again")
			if now := n.Leases(t); !slices.Equal(now, before) {
				t.Errorf("the plugin's store was %v and is %v; want no change", before, now)
			}

			undo()
			s = n.Start(t)
			wantNoQuarantine(t, s)
			s.WaitConsistent(t)
			wantHeld(t, s, "router", router)
			wantHeld(t, s, "health", health)
		})
	}
}

// failReads makes every read of a file by the node's next sidecars fail, by strace.
func failReads(t *testing.T, n *harness.Node, file string) func() {
	t.Helper()
	// With -D the sidecar is the child of the test, and strace a separate process.
	n.Wrapper = []string{wantStrace(t), "-D", "-f", "-o", os.DevNull, "-P", file, "-e", "trace=read,pread64", "-e", "inject=read,pread64:error=EIO"}
	return func() { n.Wrapper = nil }
}

// wantStartFailure waits until the sidecar ends with a failure and has logged each text.
func wantStartFailure(t *testing.T, s *harness.Sidecar, texts ...string) {
	t.Helper()
	code := s.Wait(t)
	for _, text := range texts {
		if code == 0 || !strings.Contains(s.Log(), text) {
			t.Errorf("the sidecar ended with status %d; want a failure with %q; its output:\n%s", code, text, s.Log())
		}
	}
}

func TestStartOnFullDisk(t *testing.T) {
	t.Parallel()
	st := newStats(t, storage)
	st.countCase(t)
	n := nodeWith(t)
	mountSmall(t, n.StateDir)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	s.Kill(t)
	st.addKills(1)
	undo := fillDisk(t, n, nil)

	s = n.Launch(t)
	s.WaitServing(t)
	s.WaitNotReady(t, "no space left on device")
	wantHeld(t, s, "router", held)
	undo()
	s.WaitReady(t)
	s.AllocateFor(t, "health")
	s.WaitConsistent(t)
	s.Stop(t)
}
