package unixsock

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// attackerID is the attacker's user and group.
const attackerID = 70001

// newVictim creates a file outside of the socket's directory. changed reports another mode or group.
func newVictim(t *testing.T) (path string, changed func() error) {
	t.Helper()
	path = filepath.Join(shortTempDir(t), "victim")
	check.Must(t, os.WriteFile(path, nil, 0o600))
	var before, now unix.Stat_t
	check.Must(t, unix.Lstat(path, &before))
	return path, func() error {
		err := unix.Lstat(path, &now)
		if err == nil && (before.Mode != now.Mode || before.Gid != now.Gid) {
			err = fmt.Errorf("%s had mode %o, group %d; now it has mode %o, group %d", path, before.Mode, before.Gid, now.Mode, now.Gid)
		}
		return err
	}
}

// sharedDir returns a directory in which the members of the attacker's group may write.
func sharedDir(t *testing.T) string {
	t.Helper()
	check.Root(t)
	dir := shortTempDir(t)
	check.Must(t, os.Chown(dir, -1, attackerID))
	check.Must(t, os.Chmod(dir, 0o775))
	return dir
}

// A member of the directory's group replaces the socket while Listen creates it.
//
//evidence:operate/security replacing the socket while it is created, so that root changes another file
func TestReplaced(t *testing.T) {
	dir := sharedDir(t)
	victim, changed := newVictim(t)
	path := filepath.Join(dir, "s.sock")
	for name, replace := range map[string]func() error{
		"link":                   func() error { return os.Symlink(victim, path) },
		"file":                   func() error { return os.WriteFile(path, nil, 0o600) },
		"socket of another user": func() error { leaveStaleSocket(t, path); return os.Lchown(path, attackerID, 0) },
		"nothing":                func() error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			check.Must(t, replace())
			before := lstat(path)
			_, err := setAccess(path, 0o666, 12345)
			check.True(t, err != nil, "another file was accepted as the socket")
			check.Must(t, changed())
			if after := lstat(path); after != nil {
				check.Equal(t, "mode", after.Mode(), before.Mode())
				check.Must(t, os.Remove(path))
			}
		})
	}
}

// A new socket replaces a stale one, with its mode and group.
func TestMode(t *testing.T) {
	check.Root(t)
	path := filepath.Join(shortTempDir(t), "s.sock")
	for _, mode := range []fs.FileMode{0o600, 0o666} {
		leaveStaleSocket(t, path)
		listenOn(t, Options{Path: path, Mode: mode, Group: "12345"})
		var stat unix.Stat_t
		check.Must(t, unix.Lstat(path, &stat))
		check.Equal(t, "mode of the socket", stat.Mode, unix.S_IFSOCK|uint32(mode))
		check.Equal(t, "group of the socket", stat.Gid, 12345)
		check.Must(t, os.Remove(path))
	}
}
