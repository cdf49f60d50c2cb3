package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// stateMount is run by sh: it mounts $1 over $2, for itself and what it becomes.
const stateMount = `mount --bind "$1" "$2" && shift 2 && exec "$@"`

// MountState lets every sidecar that is started from now on reach the state folder
// by a mount that no other process sees, and that RemountState and UnmountState change
// while it runs. It needs a mount namespace; where none can be made the test lacks it.
func (n *Node) MountState(t testing.TB) {
	t.Helper()
	for _, dir := range []string{n.StateDir, n.mountPoint()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() != 0 {
		Lack(t, "file systems cannot be mounted here: root is needed")
	}
	n.Flags = append(n.Flags, "--state-dir="+n.mountPoint())
	n.Under = []string{"unshare", "--mount", "sh", "-c", stateMount, "sh", n.StateDir, n.mountPoint()}
}

func (n *Node) mountPoint() string { return filepath.Join(n.Dir, "mount") }

// MountOverState mounts an empty file system over the state folder of a sidecar.
func (s *Sidecar) MountOverState(t testing.TB) {
	t.Helper()
	s.inItsMounts(t, func() error { return unix.Mount("tmpfs", s.node.mountPoint(), "tmpfs", 0, "mode=0700") })
}

// UnmountState detaches what is mounted last at the state folder of a sidecar, open
// files notwithstanding: "umount -l".
func (s *Sidecar) UnmountState(t testing.TB) {
	t.Helper()
	s.inItsMounts(t, func() error { return unix.Unmount(s.node.mountPoint(), unix.MNT_DETACH) })
}

// RemountState mounts the state folder again.
func (s *Sidecar) RemountState(t testing.TB) {
	t.Helper()
	s.inItsMounts(t, func() error { return unix.Mount(s.node.StateDir, s.node.mountPoint(), "", unix.MS_BIND, "") })
}

// InStateMount lists what a sidecar finds at the path of its state folder.
func (s *Sidecar) InStateMount(t testing.TB) []string {
	t.Helper()
	var names []string
	s.inItsMounts(t, func() error {
		entries, err := os.ReadDir(s.node.mountPoint())
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return err
	})
	return names
}

// inItsMounts does something in the mount namespace of a sidecar, on a thread that
// ends with it.
func (s *Sidecar) inItsMounts(t testing.TB, do func() error) {
	t.Helper()
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	done := make(chan error)
	go func() {
		// Never unlocked, so that the thread is thrown away.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS)
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("in the mounts of process %d: %v", s.PID(), err)
	}
}
