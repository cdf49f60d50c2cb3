package unixsock

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
			must(t, err)
			if info.Mode() != fs.ModeSocket|c.want {
				t.Errorf("mode %s, want %s", info.Mode(), fs.ModeSocket|c.want)
			}
			var stat unix.Stat_t
			must(t, unix.Lstat(path, &stat))
			if int(stat.Gid) != gid {
				t.Errorf("group %d, want %d", stat.Gid, gid)
			}
			if l.Addr().String() != path {
				t.Errorf("address %s, want %s", l.Addr(), path)
			}
			if got := entries(t, dir); len(got) != 1 {
				t.Errorf("the directory has %q; want the socket only", got)
			}
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
	must(t, err)
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
	if _, err := groupID("no such group"); err == nil || !strings.Contains(err.Error(), "--socket-group") {
		t.Errorf("unknown group: got error %v", err)
	}
}

func TestStaleSocket(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	leaveStaleSocket(t, path)
	wantReachable(t, listenOn(t, Options{Path: path}), path)
	if got := entries(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("the directory has %q; want the socket only", got)
	}
}

func TestLiveSocket(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	first := listenOn(t, Options{Path: path})
	l, err := listenAt(Options{Path: path})
	if err == nil {
		_ = l.Close()
		t.Fatal("Listen succeeded")
	}
	for _, want := range []string{path, fmt.Sprintf("PID %d", os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %s", err, want)
		}
	}
	// The check for a listener has connected.
	probe, err := first.Accept()
	must(t, err)
	must(t, probe.Close())
	wantReachable(t, first, path)
}

func TestForeignFile(t *testing.T) {
	for name, c := range map[string]struct {
		create func(t *testing.T, path string)
		want   string
	}{
		"file": {
			func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("precious"), 0o600)) },
			"not a socket",
		},
		"directory": {
			func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) },
			"not a socket",
		},
		"symbolic link to a stale socket": {
			func(t *testing.T, path string) {
				leaveStaleSocket(t, path+".real")
				must(t, os.Symlink(path+".real", path))
			},
			"not a socket",
		},
		"datagram socket": {
			func(t *testing.T, path string) {
				c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
				must(t, err)
				t.Cleanup(func() { _ = c.Close() })
			},
			"it is unknown whether",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(shortTempDir(t), "s.sock")
			c.create(t, path)
			before, err := os.Lstat(path)
			must(t, err)
			l, err := listenAt(Options{Path: path})
			if err == nil {
				_ = l.Close()
				t.Fatal("Listen succeeded")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %q, want %s and …%s…", err, path, c.want)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("the file was replaced or removed (%v)", err)
			}
		})
	}
}

func TestPathLimit(t *testing.T) {
	dir := shortTempDir(t)
	longest := filepath.Join(dir, strings.Repeat("s", maxPath-len(dir)-1))
	wantReachable(t, listenOn(t, Options{Path: longest}), longest)
	for _, path := range []string{longest + "s", ""} {
		l, err := listenAt(Options{Path: path})
		if err == nil {
			_ = l.Close()
			t.Errorf("Listen on %q succeeded", path)
		} else if !strings.Contains(err.Error(), "--socket-path") {
			t.Errorf("error %q lacks the flag", err)
		}
	}
	if _, err := listenAt(Options{Path: longest + "s"}); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("error %v lacks the limit", err)
	}
}

func TestStagingCleanup(t *testing.T) {
	dir := shortTempDir(t)
	path := filepath.Join(dir, "s.sock")
	left, err := os.MkdirTemp(dir, stagingPrefix("s.sock"))
	must(t, err)
	leaveStaleSocket(t, filepath.Join(left, stagedName))
	other, err := os.MkdirTemp(dir, stagingPrefix("other.sock"))
	must(t, err)
	listenOn(t, Options{Path: path})
	if got := entries(t, dir); len(got) != 2 {
		t.Errorf("the directory has %q; want s.sock and %s", got, filepath.Base(other))
	}
	if _, err := os.Lstat(other); err != nil {
		t.Error(err)
	}
}

func TestClose(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	l, err := listenAt(Options{Path: path})
	must(t, err)
	must(t, l.Close())
	must(t, l.Close())
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket exists after Close (%v)", err)
	}

	l, err = listenAt(Options{Path: path})
	must(t, err)
	must(t, os.Remove(path))
	next := listenOn(t, Options{Path: path})
	must(t, l.Close())
	wantReachable(t, next, path)
}

func TestInstallRace(t *testing.T) {
	for name, wasStale := range map[string]bool{
		"no socket":    false,
		"stale socket": true,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(shortTempDir(t), "s.sock")
			if wasStale {
				leaveStaleSocket(t, path)
			}
			target, err := openLocation(path)
			must(t, err)
			defer target.dir.Close()
			seen, err := target.findStale()
			must(t, err)
			staging, err := newStagingDir(target)
			must(t, err)
			defer staging.remove()
			ours, _, err := staging.bind(0o660, -1)
			must(t, err)
			defer ours.Close()

			if wasStale {
				defer seen.Close()
				must(t, os.Remove(path))
			}
			theirs, err := net.Listen("unix", path)
			must(t, err)
			defer theirs.Close()
			if err := staging.install(seen); err == nil {
				t.Error("a live socket was replaced")
			}
			wantReachable(t, theirs, path)
		})
	}
}
