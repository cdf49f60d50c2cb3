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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// folder is a short path, because a socket's path is bounded.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "access")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

func listenOn(t *testing.T, o Options) net.Listener {
	t.Helper()
	l, err := Listen(o)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l
}

// expectHears wants a connection to the path to arrive at the listener.
func expectHears(t *testing.T, l net.Listener, path string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	must(t, err)
	defer conn.Close()
	got, err := l.Accept()
	must(t, err)
	must(t, got.Close())
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// stale leaves a socket on which nobody listens, as a process that was killed does.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	must(t, l.Close())
}

func TestTheSocketHasItsModeAndGroupAndAMissingParentIsMade(t *testing.T) {
	for name, c := range map[string]struct {
		mode, want fs.FileMode
	}{
		"by default owner and group may call": {0, 0o660},
		"a given mode is taken":               {0o600, 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(folder(t), "run", "cilium")
			path := filepath.Join(dir, "s.sock")
			gid := ownGroup(t)
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
				t.Errorf("beside the socket there is %q", got)
			}
			expectHears(t, l, path)
		})
	}
}

// ownGroup is a group that we may give a file to, another than its own if we can.
func ownGroup(t *testing.T) int {
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

func TestAGroupIsFoundByNameOrNumber(t *testing.T) {
	for group, want := range map[string]int{"": -1, "0": 0, "4711": 4711, "root": 0} {
		if got, err := groupID(group); err != nil || got != want {
			t.Errorf("group %q is %d, %v; want %d", group, got, err, want)
		}
	}
	if _, err := groupID("no such group"); err == nil || !strings.Contains(err.Error(), "--socket-group") {
		t.Errorf("an unknown group gave %v", err)
	}
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(folder(t), "s.sock")
	stale(t, path)
	expectHears(t, listenOn(t, Options{Path: path}), path)
	if got := entries(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("beside the socket there is %q", got)
	}
}

func TestALiveSocketIsNotStolen(t *testing.T) {
	path := filepath.Join(folder(t), "s.sock")
	first := listenOn(t, Options{Path: path})
	l, err := Listen(Options{Path: path})
	if err == nil {
		_ = l.Close()
		t.Fatal("stolen")
	}
	for _, want := range []string{path, fmt.Sprintf("PID %d", os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
	// The question itself has come in as a connection.
	asked, err := first.Accept()
	must(t, err)
	must(t, asked.Close())
	expectHears(t, first, path)
}

func TestWhatCannotBeASocketOfOursIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(t *testing.T, path string)
		want  string
	}{
		"a file": {
			func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("precious"), 0o600)) },
			"expected a socket or nothing",
		},
		"a folder": {
			func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) },
			"expected a socket or nothing",
		},
		"a symbolic link to a stale socket": {
			func(t *testing.T, path string) {
				stale(t, path+".real")
				must(t, os.Symlink(path+".real", path))
			},
			"expected a socket or nothing",
		},
		"a socket of another kind": {
			func(t *testing.T, path string) {
				c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
				must(t, err)
				t.Cleanup(func() { _ = c.Close() })
			},
			"cannot be told",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(folder(t), "s.sock")
			c.plant(t, path)
			before, err := os.Lstat(path)
			must(t, err)
			l, err := Listen(Options{Path: path})
			if err == nil {
				_ = l.Close()
				t.Fatal("replaced")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %q, want %s and …%s…", err, path, c.want)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("it is not there any more (%v)", err)
			}
		})
	}
}

func TestAPathIsRefusedWhenNoClientCouldNameIt(t *testing.T) {
	dir := folder(t)
	longest := filepath.Join(dir, strings.Repeat("s", maxPath-len(dir)-1))
	expectHears(t, listenOn(t, Options{Path: longest}), longest)
	for _, path := range []string{longest + "s", ""} {
		l, err := Listen(Options{Path: path})
		if err == nil {
			_ = l.Close()
			t.Errorf("listens on %q", path)
		} else if !strings.Contains(err.Error(), "--socket-path") {
			t.Errorf("error %q does not name the flag", err)
		}
	}
	if _, err := Listen(Options{Path: longest + "s"}); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("error %v does not name the limit", err)
	}
}

func TestRoomsOfEarlierLivesAreRemovedAndThoseOfOtherSocketsNot(t *testing.T) {
	dir := folder(t)
	path := filepath.Join(dir, "s.sock")
	left, err := os.MkdirTemp(dir, roomPrefix(path))
	must(t, err)
	stale(t, filepath.Join(left, socketName))
	other, err := os.MkdirTemp(dir, roomPrefix(filepath.Join(dir, "other.sock")))
	must(t, err)
	listenOn(t, Options{Path: path})
	if got := entries(t, dir); len(got) != 2 {
		t.Errorf("there is %q, want s.sock and %s", got, filepath.Base(other))
	}
	if _, err := os.Lstat(other); err != nil {
		t.Error(err)
	}
}

func TestClosingRemovesTheSocketOnlyWhileItIsOurs(t *testing.T) {
	path := filepath.Join(folder(t), "s.sock")
	l, err := Listen(Options{Path: path})
	must(t, err)
	must(t, l.Close())
	must(t, l.Close())
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there (%v)", err)
	}

	l, err = Listen(Options{Path: path})
	must(t, err)
	must(t, os.Remove(path))
	next := listenOn(t, Options{Path: path})
	must(t, l.Close())
	expectHears(t, next, path)
}

func TestWhatComesBetweenTheLookAndTheMoveStays(t *testing.T) {
	for name, wasStale := range map[string]bool{
		"where there was nothing":        false,
		"where there was a stale socket": true,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(folder(t), "s.sock")
			var seen fs.FileInfo
			if wasStale {
				stale(t, path)
				var err error
				seen, err = lookFor(path)
				must(t, err)
			}
			r, err := newRoom(path)
			must(t, err)
			defer r.remove()
			ours, err := r.bind(DefaultMode, -1)
			must(t, err)
			defer ours.Close()

			// The kept name keeps the stale inode's number from being used again.
			if wasStale {
				must(t, os.Rename(path, path+".kept"))
			}
			theirs, err := net.Listen("unix", path)
			must(t, err)
			defer theirs.Close()
			if _, err := r.place(seen); err == nil {
				t.Error("placed over a live socket")
			}
			expectHears(t, theirs, path)
		})
	}
}
