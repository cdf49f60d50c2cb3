package statedir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func removalOptions() RemoveOptions {
	return RemoveOptions{Files: []string{"journal.db", "plugins.lock"}, Dirs: []string{"quarantine"}}
}

// ended returns a state directory as a sidecar leaves it that has released everything.
func ended(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	check.Must(t, lockDir(t, dir).Close())
	check.Must(t, os.Mkdir(filepath.Join(dir, "quarantine"), 0o700))
	for _, name := range []string{"journal.db", "plugins.lock", "quarantine/a"} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	return dir
}

// wantRemoval wants a removal that leaves these files and no others, all of them foreign.
func wantRemoval(t *testing.T, dir string, o RemoveOptions, foreign ...string) Removal {
	t.Helper()
	got, err := Remove(t.Context(), dir, o)
	check.NoError(t, err)
	check.True(t, slices.Equal(got.Foreign, foreign), "foreign are %q; want %q", got.Foreign, foreign)
	return got
}

func TestRemove(t *testing.T) {
	dir := ended(t)
	got := wantRemoval(t, dir, removalOptions()).Removed
	if !slices.Contains(got, filepath.Join(dir, "plugins.lock")) || got[len(got)-1] != dir {
		t.Errorf("removed %q", got)
	}
	check.Absent(t, dir)
	check.Equal(t, "removed again", len(wantRemoval(t, dir, removalOptions()).Removed), 0)
	check.Equal(t, "files beside the directory", check.Names(t, filepath.Dir(dir)), "")

	// An empty directory is removed as it is, with any mode.
	check.Must(t, os.Mkdir(dir, 0o755))
	check.Equal(t, "removed", wantRemoval(t, dir, removalOptions()).Removed, []string{dir})
	check.Absent(t, dir)
}

func TestRemoveKept(t *testing.T) {
	dir := ended(t)
	o := removalOptions()
	o.KeepDir = true
	check.Must(t, os.Mkdir(filepath.Join(dir, lostAndFound), 0o700))
	for range 2 {
		wantRemoval(t, dir, o)
		check.Equal(t, "files in the directory", check.Names(t, dir), lostAndFound)
	}
}

func TestRemoveRefused(t *testing.T) {
	dir := ended(t)
	o := removalOptions()
	o.Prepare = func() ([]string, error) { return []string{"first"}, errors.New("in use") }
	before := check.Names(t, dir)
	got, err := Remove(t.Context(), dir, o)
	check.Error(t, err, "in use")
	check.Equal(t, "removed", got.Removed, []string{"first"})
	check.Equal(t, "files in the directory", check.Names(t, dir), before)
}

func TestRemoveQuarantine(t *testing.T) {
	dir := ended(t)
	quarantine := filepath.Join(dir, "quarantine")
	check.Must(t, os.MkdirAll(filepath.Join(quarantine, "directory/of another"), 0o700))
	target := filepath.Join(t.TempDir(), "precious")
	check.Must(t, os.WriteFile(target, []byte("x"), 0o600))
	check.Must(t, os.Symlink(target, filepath.Join(quarantine, "link")))
	wantRemoval(t, dir, removalOptions(), filepath.Join(quarantine, "directory"), quarantine) // not a file that the program made
	_, err := os.Stat(target)
	check.NoError(t, err)
	check.Must(t, os.RemoveAll(filepath.Join(quarantine, "directory")))
	wantRemoval(t, dir, removalOptions())
	check.Absent(t, dir)
}

func TestRemoveForeign(t *testing.T) {
	target := filepath.Join(t.TempDir(), "precious")
	check.Must(t, os.WriteFile(target, []byte("x"), 0o600))
	for name, plant := range map[string]func(path string) error{
		"notes":        func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"plugins.lock": func(path string) error { return errors.Join(os.Remove(path), os.Symlink(target, path)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := ended(t)
			planted := filepath.Join(dir, name)
			check.Must(t, plant(planted))
			wantRemoval(t, dir, removalOptions(), planted)
			check.Equal(t, "files in the directory", check.Names(t, dir), name)
			content, err := os.ReadFile(target)
			check.True(t, err == nil && string(content) == "x", "the target of the link has %q, %v", content, err)
		})
	}
}

// Nothing is changed in a directory that is not a state directory.
func TestRemoveNoStateDir(t *testing.T) {
	foreign := t.TempDir()
	check.Must(t, os.Chmod(foreign, 0o755))
	for _, name := range []string{lockName, "packages"} {
		check.Must(t, os.WriteFile(filepath.Join(foreign, name), []byte("x"), 0o644))
	}
	state, link := ended(t), filepath.Join(t.TempDir(), "link")
	check.Must(t, os.Symlink(state, link))
	file := filepath.Join(foreign, "packages")
	refused := func(dir, word string) {
		t.Helper()
		got, err := Remove(t.Context(), dir, removalOptions())
		check.Error(t, err, word)
		check.Equal(t, "removed", len(got.Removed), 0)
	}
	for dir, word := range map[string]string{foreign: "not a state directory", link: "symbolic link", file: "not a directory", "": "empty path"} {
		refused(dir, word)
	}
	info, err := os.Stat(foreign)
	check.Must(t, err)
	check.Equal(t, "mode", info.Mode().Perm(), 0o755)
	check.Equal(t, "files in the directory", check.Names(t, foreign), lockName+" packages")
	check.Contains(t, check.Names(t, state), lockName)
	if os.Geteuid() == 0 {
		check.Must(t, os.Chown(foreign, 60914, -1))
		refused(foreign, "user 60914")
	}
}

// A state directory that is replaced while the command waits for the lock stays.
func TestRemoveReplaced(t *testing.T) {
	dir := ended(t)
	lock := lockDir(t, dir)
	victim := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(victim, lockName), []byte("precious"), 0o600))
	moved := dir + ".moved"
	o := removalOptions()
	o.OnWait = func(holder string) {
		check.True(t, strings.HasPrefix(holder, "PID "), "the holder is %q", holder)
		check.Must(t, errors.Join(os.Rename(dir, moved), os.Symlink(victim, dir), lock.Close()))
	}
	got, err := Remove(t.Context(), dir, o)
	check.Error(t, err, "symbolic link")
	check.Equal(t, "removed", len(got.Removed), 0)
	content, err := os.ReadFile(filepath.Join(victim, lockName))
	check.True(t, err == nil && string(content) == "precious", "the file of the target has %q, %v", content, err)
	check.Contains(t, check.Names(t, moved), lockName)
}

func TestRemoveWhileLocked(t *testing.T) {
	dir := ended(t)
	lock := lockDir(t, dir)
	ctx, cancel := context.WithCancelCause(t.Context())
	o := removalOptions()
	o.OnWait = func(string) { cancel(errors.New("waited long enough")) }
	got, err := Remove(ctx, dir, o)
	check.Error(t, err, "waited long enough", "held by PID ")
	check.Equal(t, "removed", len(got.Removed), 0)
	check.Must(t, lock.Close())
}

// A mount point cannot be removed, even if the caller does not know that it is one.
func TestRemoveMountPoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	check.Must(t, os.Mkdir(dir, 0o700))
	check.Tmpfs(t, dir, "0700")
	check.Must(t, lockDir(t, dir).Close())
	for range 2 {
		wantRemoval(t, dir, removalOptions())
		check.Equal(t, "files in the directory", check.Names(t, dir), "")
	}
}
