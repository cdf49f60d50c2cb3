package unixsock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The error has the full path, each fact once, and what to do.
func TestReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := shortTempDir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	l, err := listenAt(Options{Path: filepath.Join(dir, "live")})
	must(t, err)
	leaveStaleSocket(t, filepath.Join(dir, "stale"))
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	listen := func(name string) error {
		_, err := listenAt(Options{Path: filepath.Join(dir, name)})
		return err
	}
	_, removeErr := Remove(filepath.Join(dir, "stale"))
	const remedy = "read-only file system; mount its file system writable, or configure another directory (--socket-path)"
	for want, err := range map[string]error{
		"socket DIR/s: a staging directory cannot be created in DIR: " + remedy: listen("s"),
		"socket DIR/a/s: mkdir DIR/a: " + remedy:                                listen("a/s"),
		"socket DIR/stale: unlink: " + remedy:                                   removeErr,
		"unlink DIR/live: read-only file system":                                l.Close(),
	} {
		if want = strings.ReplaceAll(want, "DIR", dir); err == nil || err.Error() != want || !errors.Is(err, unix.EROFS) {
			t.Errorf("got\n%v; want\n%s", err, want)
		}
	}
}
