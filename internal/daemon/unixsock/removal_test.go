package unixsock

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestRemove(t *testing.T) {
	dir := shortTempDir(t)
	path := filepath.Join(dir, "s.sock")
	leaveStaleSocket(t, path)
	removed, err := Remove(path)
	if want := []string{path}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %q, %v; want %q", removed, err, want)
	}
	check.Equal(t, "files in the directory", check.Names(t, dir), "")
	for _, path := range []string{path, filepath.Join(dir, "none", "s.sock")} {
		if removed, err := Remove(path); err != nil || len(removed) > 0 {
			t.Errorf("%s: removed %q, %v; want nothing", path, removed, err)
		}
	}
}

// Listen and Remove refuse a path with what they must not replace, and leave it.
//
//evidence:operate/security another file, link or socket at the socket's path
func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		plant func(t *testing.T, path string)
		want  string
	}{
		"live socket": {func(t *testing.T, path string) { listenOn(t, Options{Path: path}) }, "already listens"},
		"file":        {func(t *testing.T, path string) { check.Must(t, os.WriteFile(path, nil, 0o600)) }, "not a socket"},
		"directory":   {func(t *testing.T, path string) { check.Must(t, os.Mkdir(path, 0o700)) }, "not a socket"},
		"link to a stale socket": {func(t *testing.T, path string) {
			leaveStaleSocket(t, path+".real")
			check.Must(t, os.Symlink(path+".real", path))
		}, "not a socket"},
		"datagram socket": {func(t *testing.T, path string) {
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			check.Must(t, err)
			t.Cleanup(func() { _ = c.Close() })
		}, "it is unknown whether"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortTempDir(t)
			path := filepath.Join(dir, "s.sock")
			tt.plant(t, path)
			before, names := lstat(path), check.Names(t, dir)
			check.Error(t, refused(t, path), path, tt.want)
			removed, err := Remove(path)
			check.Error(t, err, path, tt.want)
			check.Equal(t, "removed files", len(removed), 0)
			check.Equal(t, "files in the directory", check.Names(t, dir), names)
			check.True(t, os.SameFile(before, lstat(path)) || before == nil, "the file was replaced")
		})
	}
}

// lstat returns the file at a path; nil if there is none.
func lstat(path string) fs.FileInfo {
	info, _ := os.Lstat(path)
	return info
}
