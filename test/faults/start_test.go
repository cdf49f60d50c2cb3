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

func TestAStartWithoutAUsableStateFolderEndsWithTheReason(t *testing.T) {
	t.Parallel()
	count := newTally(t, storage)
	tests := map[string]struct {
		happen func(t *testing.T, dir string) (reacquire func())
		says   string
	}{
		"a file in its place": {func(t *testing.T, dir string) func() {
			must(t, os.WriteFile(dir, nil, 0o600))
			return func() { must(t, os.Remove(dir)) }
		}, "not a directory"},
		"a symbolic link in its place": {func(t *testing.T, dir string) func() {
			must(t, os.Symlink(t.TempDir(), dir))
			return func() { must(t, os.Remove(dir)) }
		}, "symbolic link"},
		"read-only": {func(t *testing.T, dir string) func() {
			mountSmall(t, dir)
			must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			return func() { must(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "")) }
		}, "read-only file system"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n := nodeWith(t)
			reacquire := tt.happen(t, n.StateDir)
			s := n.Launch(t)
			if code := s.Wait(t); code == 0 || !strings.Contains(s.Log(), tt.says) {
				t.Errorf("it ended with status %d; want a failure that says %q; its output:\n%s", code, tt.says, s.Log())
			}

			reacquire()
			s = n.Start(t)
			s.AllocateFor(t, "router")
			s.WaitConsistent(t)
		})
	}
}

// It may be a good record: given up, its addresses would be lost to the owner.
func TestAStartThatCannotReadARecordEndsWithTheReasonAndLosesNothing(t *testing.T) {
	t.Parallel()
	count := newTally(t, storage)
	tests := map[string]struct {
		happen func(t *testing.T, n *harness.Node, record string) (reacquire func())
		says   string
	}{
		"permission": {func(t *testing.T, n *harness.Node, record string) func() {
			obeyModes(t, n)
			must(t, os.Chmod(record, 0))
			return func() { must(t, os.Chmod(record, 0o600)) }
		}, "permission denied"},
		"I/O error": {failReads, "input/output error"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n := nodeWith(t)
			s := n.Start(t)
			router := s.AllocateFor(t, "router")
			health := s.AllocateFor(t, "health")
			record := s.Attachment(t, "router").ContainerID + ".json"
			s.Stop(t)
			before := n.Leases(t)

			reacquire := tt.happen(t, n, filepath.Join(attachments(n), record))
			s = n.Launch(t)
			code := s.Wait(t)
			for _, says := range []string{record, tt.says, "start again"} {
				if code == 0 || !strings.Contains(s.Log(), says) {
					t.Errorf("it ended with status %d; want a failure that says %q; its output:\n%s", code, says, s.Log())
				}
			}
			if now := n.Leases(t); !slices.Equal(now, before) {
				t.Errorf("the plugin's store was %v and is %v; want it not to be touched", before, now)
			}

			reacquire()
			s = n.Start(t)
			if got := s.Health(t).DelegatedIPAM.Quarantined; len(got) != 0 {
				t.Errorf("health shows the quarantined records %+v; want none", got)
			}
			s.WaitConsistent(t)
			wantHeld(t, s, "router", router)
			wantHeld(t, s, "health", health)
		})
	}
}

// failReads lets each read of a file by the node's next sidecars fail by strace's
// injection.
func failReads(t *testing.T, n *harness.Node, file string) func() {
	t.Helper()
	// -D makes the sidecar our child and strace a process beside it.
	n.Wrapper = []string{wantStrace(t), "-D", "-f", "-o", os.DevNull, "-P", file, "-e", "trace=read,pread64", "-e", "inject=read,pread64:error=EIO"}
	return func() { n.Wrapper = nil }
}

func TestAStartOnAFullDiskServesWhatIsHeld(t *testing.T) {
	t.Parallel()
	count := newTally(t, storage)
	count.watch(t)
	n := nodeWith(t)
	mountSmall(t, n.StateDir)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	s.Kill(t)
	count.killed(1)
	reacquire := fillUp(t, n, nil)

	s = n.Launch(t)
	s.WaitServing(t)
	wantUnready(t, s, "no space left on device")
	wantHeld(t, s, "router", held)
	reacquire()
	s.WaitReady(t)
	s.AllocateFor(t, "health")
	s.WaitConsistent(t)
	s.Stop(t)
}
