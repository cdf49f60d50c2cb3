package unixsock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestSocketMode(t *testing.T) {
	for name, c := range map[string]struct {
		mode, want fs.FileMode
	}{
		"default": {0, 0o660},
		"0600":    {0o600, 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(shortTempDir(t), "run", "cilium")
			path := filepath.Join(dir, "s.sock")
			gid := chownGroup(t)
			l := listenOn(t, Options{Path: path, Mode: c.mode, Group: fmt.Sprint(gid)})
			info, err := os.Lstat(path)
			check.Must(t, err)
			check.Equal(t, "mode", info.Mode(), fs.ModeSocket|c.want)
			_, got := ownerOf(info)
			check.Equal(t, "group", got, gid)
			check.Equal(t, "address", l.Addr().String(), path)
			check.Equal(t, "files in the directory", check.Names(t, dir), "s.sock")
			wantReachable(t, l, path)
		})
	}
}

// chownGroup returns a group that we may set for a file, if possible another than our primary one.
func chownGroup(t *testing.T) int {
	t.Helper()
	if os.Geteuid() == 0 {
		return 12345
	}
	groups, err := os.Getgroups()
	check.Must(t, err)
	for _, g := range groups {
		if g != os.Getegid() {
			return g
		}
	}
	return os.Getegid()
}

func TestGroupID(t *testing.T) {
	for group, want := range map[string]int{"": -1, "0": 0, "4711": 4711, "root": 0} {
		if got, err := groupID(group); err != nil || got != want {
			t.Errorf("group %q: got %d, %v; want %d", group, got, err, want)
		}
	}
	_, err := groupID("no such group")
	check.Error(t, err, "--socket-group")
}

func TestStaleSocket(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	leaveStaleSocket(t, path)
	wantReachable(t, listenOn(t, Options{Path: path}), path)
	check.Equal(t, "files in the directory", check.Names(t, filepath.Dir(path)), "s.sock")
}

func TestLiveSocket(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	first := listenOn(t, Options{Path: path})
	check.Error(t, refused(t, path), path, fmt.Sprintf("PID %d", os.Getpid()))
	// The check for a listener has connected.
	probe, err := first.Accept()
	check.Must(t, err)
	check.Must(t, probe.Close())
	wantReachable(t, first, path)
}

//evidence:operate/security `--socket-path @name`, which has neither mode nor group
func TestPath(t *testing.T) {
	dir := shortTempDir(t)
	longest := filepath.Join(dir, strings.Repeat("s", maxPath-len(dir)-1))
	wantReachable(t, listenOn(t, Options{Path: longest}), longest)
	check.Error(t, refused(t, longest+"s"), "--socket-path", "107")
	check.Error(t, refused(t, ""), "--socket-path")
	for _, path := range []string{"@delegated-ipam", "\x00delegated-ipam"} {
		check.Error(t, refused(t, path), "abstract socket")
	}
}

func TestClose(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	l, err := listenAt(Options{Path: path})
	check.Must(t, err)
	check.Must(t, l.Close())
	check.Must(t, l.Close())
	check.Absent(t, path)

	l, err = listenAt(Options{Path: path})
	check.Must(t, err)
	check.Must(t, os.Remove(path))
	next := listenOn(t, Options{Path: path})
	check.Must(t, l.Close())
	wantReachable(t, next, path)
}

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
		"socket DIR/s: the socket cannot be created in DIR: " + remedy: listen("s"),
		"socket DIR/a/s: mkdir DIR/a: " + remedy:                       listen("a/s"),
		"socket DIR/stale: remove: " + remedy:                          removeErr,
		"socket DIR/live: remove: " + remedy:                           l.Close(),
	} {
		if want = strings.ReplaceAll(want, "DIR", dir); err == nil || err.Error() != want || !errors.Is(err, unix.EROFS) {
			t.Errorf("got\n%v; want\n%s", err, want)
		}
	}
}

func TestForeignParent(t *testing.T) {
	check.Root(t)
	dir := shortTempDir(t)
	check.Must(t, os.Chown(dir, 70001, -1))
	path := filepath.Join(dir, "s.sock")
	check.Error(t, refused(t, path), path, "70001", "--socket-path")
	check.Equal(t, "files in the directory", check.Names(t, dir), "")
}

func TestCheckParentMode(t *testing.T) {
	for name, c := range map[string]struct {
		mode fs.FileMode
		want string
	}{
		"owner only":             {0o755, ""},
		"group-writable":         {0o775, "is group-writable"},
		"group-writable, sticky": {0o775 | fs.ModeSticky, ""},
		"world-writable":         {0o777, "is world-writable"},
		"world-writable, sticky": {0o777 | fs.ModeSticky, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortTempDir(t)
			check.Must(t, os.Chmod(dir, c.mode))
			path := filepath.Join(dir, "s.sock")
			listenOn(t, Options{Path: path}) // Listen succeeds anyway
			err := CheckParentMode(path)
			if c.want == "" {
				check.NoError(t, err)
			} else {
				check.Error(t, err, dir+" "+c.want)
			}
		})
	}
	check.Error(t, CheckParentMode(filepath.Join(shortTempDir(t), "missing", "s.sock")))
}
