package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// MountState makes every daemon that is started from now on reach the state directory through
// a separate mount, which MountOverState, UnmountState and RemountState change while it runs.
// Without root the test is skipped.
func (n *Node) MountState(t testing.TB) {
	t.Helper()
	for _, dir := range []string{n.StateDir, n.mountPoint()} {
		check.Must(t, os.MkdirAll(dir, 0o700))
	}
	if os.Geteuid() != 0 {
		Skipf(t, "mounting a file system needs root")
	}
	n.Flags = append(n.Flags, "--state-dir="+n.mountPoint())
	n.Wrapper = bindMount(n.StateDir, n.mountPoint())
}

func (n *Node) mountPoint() string { return filepath.Join(n.Dir, "mount") }

// MountOverState mounts an empty file system over the state directory of a daemon.
func (s *Daemon) MountOverState(t testing.TB) {
	t.Helper()
	s.inMountNamespace(t, func() error { return unix.Mount("tmpfs", s.node.mountPoint(), "tmpfs", 0, "mode=0700") })
}

// UnmountState detaches the last mount at the state directory of a daemon despite its open
// files, like "umount -l".
func (s *Daemon) UnmountState(t testing.TB) {
	t.Helper()
	s.inMountNamespace(t, func() error { return unix.Unmount(s.node.mountPoint(), unix.MNT_DETACH) })
}

// RemountState mounts the state directory again.
func (s *Daemon) RemountState(t testing.TB) {
	t.Helper()
	s.inMountNamespace(t, func() error { return unix.Mount(s.node.StateDir, s.node.mountPoint(), "", unix.MS_BIND, "") })
}

// ListStateMount lists the files at the path of a daemon's state directory, as the daemon sees them.
func (s *Daemon) ListStateMount(t testing.TB) []string {
	t.Helper()
	var names []string
	s.inMountNamespace(t, func() error {
		entries, err := os.ReadDir(s.node.mountPoint())
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return err
	})
	return names
}

// inMountNamespace calls f in the mount namespace of a daemon, on a thread that exits with f.
func (s *Daemon) inMountNamespace(t testing.TB, f func() error) {
	t.Helper()
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", s.PID()))
	check.Must(t, err)
	defer namespace.Close()
	done := make(chan error)
	go func() {
		// Without a call of UnlockOSThread the runtime discards the thread.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("in the mount namespace of process %d: %v", s.PID(), err)
	}
}
