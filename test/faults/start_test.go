package faults

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestAStartWithoutAUsableStateFolderEndsWithTheReason(t *testing.T) {
	t.Parallel()
	count := newTally(t, storage)
	tests := map[string]struct {
		happen func(t *testing.T, dir string) (heal func())
		says   string
	}{
		"a file in its place": {func(t *testing.T, dir string) func() {
			must(t, os.WriteFile(dir, nil, 0o600))
			return func() { must(t, os.Remove(dir)) }
		}, "no folder"},
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
			heal := tt.happen(t, n.StateDir)
			s := n.Launch(t)
			if code := s.Wait(t); code == 0 || !strings.Contains(s.Log(), tt.says) {
				t.Errorf("it ended with status %d; want a failure that says %q; its output:\n%s", code, tt.says, s.Log())
			}

			heal()
			s = n.Start(t)
			s.Allocate(t, harness.Request{Owner: "router"})
			s.Agree(t)
		})
	}
}

func TestAStartOnAFullDiskServesWhatIsHeld(t *testing.T) {
	t.Parallel()
	count := newTally(t, storage)
	count.watch(t)
	n := nodeWith(t)
	mountSmall(t, n.StateDir)
	s := n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	s.Kill(t)
	count.killed(1)
	heal := fillUp(t, n, nil)

	s = n.Launch(t)
	s.WaitServing(t)
	wantUnready(t, s, "no space left on device")
	wantHeld(t, s, "router", held)
	heal()
	s.WaitReady(t)
	s.Allocate(t, harness.Request{Owner: "health"})
	s.Agree(t)
	s.Stop(t)
}
