package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func stateDir(n *harness.Node) string { return n.StateDir }

func attachments(n *harness.Node) string { return filepath.Join(n.StateDir, "attachments") }

// mountSmall mounts a file system of 256 KiB on a directory.
func mountSmall(t *testing.T, dir string) {
	t.Helper()
	harness.Must(t, os.MkdirAll(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=256k,mode=0700"); err != nil {
		harness.Skipf(t, "mounting a file system needs root: %v", err)
	}
	t.Cleanup(func() { tryUnmount(t, dir) })
}

func fillDisk(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	ballast := filepath.Join(n.StateDir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); err == nil {
		t.Fatal("the file system is too large for this test")
	}
	return func() { harness.Must(t, os.Remove(ballast)) }
}

func makeReadOnly(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	harness.Must(t, unix.Mount("", attachments(n), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	return func() { harness.Must(t, unix.Mount("", attachments(n), "", unix.MS_REMOUNT, "")) }
}

// dropCapabilities makes file modes apply to a sidecar that runs as root.
func dropCapabilities(t *testing.T, n *harness.Node) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		harness.Skipf(t, "setpriv (util-linux) is needed, because root ignores file modes: %v", err)
	}
	n.Wrapper = []string{setpriv, "--inh-caps=-all", "--bounding-set=-all"}
}

func removeWritePermission(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	harness.Must(t, os.Chmod(attachments(n), 0o500))
	return func() { harness.Must(t, os.Chmod(attachments(n), 0o700)) }
}

// failFsync makes every fsync and fdatasync of the sidecar fail, by strace.
func failFsync(t *testing.T, _ *harness.Node, s *harness.Sidecar) func() {
	cmd := exec.Command(wantStrace(t), "-f", "-o", os.DevNull, "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO", "-p", fmt.Sprint(s.PID()))
	harness.Must(t, cmd.Start())
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		// Its end detaches strace from the sidecar. SIGINT would let it detach from one thread after the
		// other, for ever from one whose vfork waits for a child that strace has stopped.
		harness.Must(t, cmd.Process.Kill())
		_ = cmd.Wait() // by that signal
	}
	t.Cleanup(stop)
	return stop
}

// moveAway renames the state directory, and back.
func moveAway(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	away := n.StateDir + ".away"
	harness.Must(t, os.Rename(n.StateDir, away))
	return func() { harness.Must(t, os.Rename(away, n.StateDir)) }
}

// recreate deletes the state directory and creates an empty one.
func recreate(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	harness.Must(t, os.RemoveAll(n.StateDir))
	harness.Must(t, os.Mkdir(n.StateDir, 0o700))
	return func() {}
}

// replaceBySymlink moves a directory away and replaces it by a symlink to it.
func replaceBySymlink(directory func(*harness.Node) string) func(*testing.T, *harness.Node, *harness.Sidecar) func() {
	return func(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
		path, moved := directory(n), filepath.Join(n.Dir, "moved")
		harness.Must(t, os.Rename(path, moved))
		harness.Must(t, os.Symlink(moved, path))
		return func() {
			harness.Must(t, os.Remove(path))
			harness.Must(t, os.Rename(moved, path))
		}
	}
}

// replaceByFile moves the state directory away and replaces it by a file.
func replaceByFile(t *testing.T, n *harness.Node, s *harness.Sidecar) func() {
	back := moveAway(t, n, s)
	harness.Must(t, os.WriteFile(n.StateDir, nil, 0o600))
	return func() {
		harness.Must(t, os.Remove(n.StateDir))
		back()
	}
}

// replaceByDir moves a directory away and replaces it by an empty one.
func replaceByDir(directory func(*harness.Node) string) func(*testing.T, *harness.Node, *harness.Sidecar) func() {
	return func(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
		path, moved := directory(n), filepath.Join(n.Dir, "moved")
		harness.Must(t, os.Rename(path, moved))
		harness.Must(t, os.Mkdir(path, 0o700))
		return func() {
			harness.Must(t, os.RemoveAll(path))
			harness.Must(t, os.Rename(moved, path))
		}
	}
}

// mountOver mounts an empty file system over a directory.
func mountOver(directory func(*harness.Node) string) func(*testing.T, *harness.Node, *harness.Sidecar) func() {
	return func(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
		mountSmall(t, directory(n))
		return func() { harness.Must(t, unix.Unmount(directory(n), 0)) }
	}
}

// diskPath returns a second mount point of mountStateDir's file system, which preserves it while it
// is unmounted from the state directory.
func diskPath(n *harness.Node) string { return filepath.Join(n.Dir, "disk") }

// mountStateDir mounts a file system at the state directory.
func mountStateDir(t *testing.T, n *harness.Node) {
	t.Helper()
	mountSmall(t, diskPath(n))
	harness.Must(t, os.MkdirAll(n.StateDir, 0o700))
	mountDisk(t, n)
	t.Cleanup(func() { tryUnmount(t, n.StateDir) })
}

func mountDisk(t *testing.T, n *harness.Node) {
	t.Helper()
	harness.Must(t, unix.Mount(diskPath(n), n.StateDir, "", unix.MS_BIND, ""))
}

// unmount detaches the state directory although it is in use, like "umount -l".
func unmount(t *testing.T, n *harness.Node, _ *harness.Sidecar) func() {
	harness.Must(t, unix.Unmount(n.StateDir, unix.MNT_DETACH))
	return func() { mountDisk(t, n) }
}

// tryUnmount unmounts a directory that may no longer be a mount point.
func tryUnmount(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
}

// contents returns the types of directories and the contents of files in a directory, by path.
func contents(t *testing.T, in fs.FS) map[string]string {
	t.Helper()
	found := map[string]string{}
	harness.Must(t, fs.WalkDir(in, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		found[path] = d.Type().String()
		if d.Type().IsRegular() {
			var data []byte
			data, err = fs.ReadFile(in, path)
			found[path] = string(data)
		}
		return err
	}))
	return found
}
