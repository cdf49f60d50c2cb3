package unixsock

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRemove(t *testing.T) {
	dir := shortTempDir(t)
	path := filepath.Join(dir, "s.sock")
	leaveStaleSocket(t, path)
	staging, err := os.MkdirTemp(dir, stagingPrefix("s.sock"))
	must(t, err)
	leaveStaleSocket(t, filepath.Join(staging, stagedName))
	other, err := os.MkdirTemp(dir, stagingPrefix("other.sock"))
	must(t, err)
	removed, err := Remove(path)
	if want := []string{path, staging}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %q, %v; want %q", removed, err, want)
	}
	if got := entries(t, dir); !slices.Equal(got, []string{filepath.Base(other)}) {
		t.Errorf("the directory has %q; want the file of another socket", got)
	}
	for _, path := range []string{path, filepath.Join(dir, "none", "s.sock")} {
		if removed, err := Remove(path); err != nil || len(removed) > 0 {
			t.Errorf("%s: removed %q, %v; want nothing", path, removed, err)
		}
	}
}

func TestRemoveRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		plant func(t *testing.T, path string)
		want  string
	}{
		"live socket": {func(t *testing.T, path string) { listenOn(t, Options{Path: path}) }, "already listens"},
		"file":        {func(t *testing.T, path string) { must(t, os.WriteFile(path, nil, 0o600)) }, "not a socket"},
		"link to a stale socket": {func(t *testing.T, path string) {
			leaveStaleSocket(t, path+".real")
			must(t, os.Symlink(path+".real", path))
		}, "not a socket"},
		"socket of another user": {func(t *testing.T, path string) {
			if os.Geteuid() != 0 {
				t.Skip("changing an owner needs root")
			}
			leaveStaleSocket(t, path)
			must(t, os.Chown(path, 60914, -1))
		}, "user 60914"},
		"staging directory with a file": {func(t *testing.T, path string) {
			staging, err := os.MkdirTemp(filepath.Dir(path), stagingPrefix("s.sock"))
			must(t, err)
			must(t, os.WriteFile(filepath.Join(staging, "x"), nil, 0o600))
		}, "staging directory"},
		"staging directory is a link": {func(t *testing.T, path string) {
			must(t, os.Symlink(t.TempDir(), filepath.Join(filepath.Dir(path), stagingPrefix("s.sock")+"x")))
		}, "staging directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortTempDir(t)
			path := filepath.Join(dir, "s.sock")
			tt.plant(t, path)
			before := entries(t, dir)
			if removed, err := Remove(path); err == nil || !strings.Contains(err.Error(), tt.want) || len(removed) > 0 {
				t.Errorf("removed %q, %v; want an error with %q", removed, err, tt.want)
			}
			if after := entries(t, dir); !slices.Equal(before, after) {
				t.Errorf("the directory has %q; want %q", after, before)
			}
		})
	}
}
