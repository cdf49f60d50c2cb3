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

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// injection causes a fault of the state directory and returns a function that removes it.
type injection func(t *testing.T, n *harness.Node, s *harness.Daemon) (undo func())

func stateDir(n *harness.Node) string { return n.StateDir }

func journalFile(n *harness.Node) string { return filepath.Join(n.StateDir, "journal.db") }

// mountSmall mounts a file system of 4 MiB on a directory.
func mountSmall(t *testing.T, dir string) {
	t.Helper()
	check.Must(t, os.MkdirAll(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=4m,mode=0700"); err != nil {
		harness.Skipf(t, "mounting a file system needs root: %v", err)
	}
	t.Cleanup(func() { tryUnmount(t, dir) })
}

// tryUnmount unmounts a directory that may no longer be a mount point.
func tryUnmount(t *testing.T, dir string) {
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
}

func fillDisk(t *testing.T, n *harness.Node, _ *harness.Daemon) func() {
	ballast := filepath.Join(n.StateDir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); err == nil {
		t.Fatal("the file system is too large for this test")
	}
	return func() { check.Must(t, os.Remove(ballast)) }
}

func makeReadOnly(directory func(*harness.Node) string) injection {
	return func(t *testing.T, n *harness.Node, _ *harness.Daemon) func() {
		remount := func(flags uintptr) { check.Must(t, unix.Mount("", directory(n), "", unix.MS_REMOUNT|flags, "")) }
		remount(unix.MS_RDONLY)
		return func() { remount(0) }
	}
}

// dropCapabilities makes file modes apply to a daemon that runs as root.
func dropCapabilities(t *testing.T, n *harness.Node) {
	t.Helper()
	if os.Geteuid() == 0 {
		n.Wrapper = []string{needProgram(t, "setpriv"), "--inh-caps=-all", "--bounding-set=-all"}
	}
}

func removeWritePermission(t *testing.T, n *harness.Node, _ *harness.Daemon) func() {
	check.Must(t, os.Chmod(n.StateDir, 0o500))
	return func() { check.Must(t, os.Chmod(n.StateDir, 0o700)) }
}

// failCalls makes every one of these system calls of the daemon fail, by strace.
func failCalls(calls, errno string) injection {
	return func(t *testing.T, _ *harness.Node, s *harness.Daemon) func() { return inject(t, s, calls, errno) }
}

func inject(t *testing.T, s *harness.Daemon, calls, errno string) func() {
	cmd := exec.Command(wantStrace(t), "-f", "-o", os.DevNull, "-e", "trace="+calls, "-e", "inject="+calls+":error="+errno, "-p", fmt.Sprint(s.PID()))
	check.Must(t, cmd.Start())
	stop := func() {
		// Its end detaches strace from the daemon. SIGINT would let it detach from one thread after the
		// other, for ever from one whose vfork waits for a child that strace has stopped.
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // by that signal
	}
	t.Cleanup(stop)
	return stop
}

// failReads makes every read of a file by the node's next daemons fail, by strace.
func failReads(t *testing.T, n *harness.Node, file string) func() {
	// With -D the daemon is the child of the test, and strace a separate process.
	n.Wrapper = []string{wantStrace(t), "-D", "-f", "-o", os.DevNull, "-P", file, "-e", "trace=read,pread64", "-e", "inject=read,pread64:error=EIO"}
	return func() { n.Wrapper = nil }
}

// replace moves a directory away, and calls put to create something in its place.
func replace(directory func(*harness.Node) string, put func(path, moved string) error) injection {
	return func(t *testing.T, n *harness.Node, _ *harness.Daemon) func() {
		path, moved := directory(n), filepath.Join(n.Dir, "moved")
		check.Must(t, errors.Join(os.Rename(path, moved), put(path, moved)))
		return func() {
			if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
				check.Must(t, err)
			}
			check.Must(t, os.Rename(moved, path))
		}
	}
}

func nothing(string, string) error { return nil }

func symlink(path, moved string) error { return os.Symlink(moved, path) }

func emptyFile(path, _ string) error { return os.WriteFile(path, nil, 0o600) }

func emptyDir(path, _ string) error { return os.Mkdir(path, 0o700) }

// mountOver mounts an empty file system over a directory.
func mountOver(directory func(*harness.Node) string) injection {
	return func(t *testing.T, n *harness.Node, _ *harness.Daemon) func() {
		mountSmall(t, directory(n))
		return func() { check.Must(t, unix.Unmount(directory(n), 0)) }
	}
}

// mountStateDir mounts a file system at the state directory, and at a second mount point, which
// preserves it while it is unmounted from the state directory.
func mountStateDir(t *testing.T, n *harness.Node) {
	t.Helper()
	mountSmall(t, filepath.Join(n.Dir, "disk"))
	check.Must(t, os.MkdirAll(n.StateDir, 0o700))
	mountDisk(t, n)
	t.Cleanup(func() { tryUnmount(t, n.StateDir) })
}

func mountDisk(t *testing.T, n *harness.Node) {
	t.Helper()
	check.Must(t, unix.Mount(filepath.Join(n.Dir, "disk"), n.StateDir, "", unix.MS_BIND, ""))
}

// unmount detaches the state directory although it is in use, like "umount -l".
func unmount(t *testing.T, n *harness.Node, _ *harness.Daemon) func() {
	check.Must(t, unix.Unmount(n.StateDir, unix.MNT_DETACH))
	return func() { mountDisk(t, n) }
}

// contents returns the types of directories and the contents of files in a directory, by path.
func contents(t *testing.T, in fs.FS) map[string]string {
	t.Helper()
	found := map[string]string{}
	check.Must(t, fs.WalkDir(in, ".", func(path string, d fs.DirEntry, err error) error {
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
