package unixsock

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// The error has the full path, each fact once, and what to do.
func TestReadOnly(t *testing.T) {
	dir := shortTempDir(t)
	check.Tmpfs(t, dir, "0755")
	l, err := listenAt(Options{Path: filepath.Join(dir, "live")})
	check.Must(t, err)
	leaveStaleSocket(t, filepath.Join(dir, "stale"))
	check.Must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
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
