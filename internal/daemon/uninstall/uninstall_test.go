package uninstall

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/spool"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func lock(t *testing.T, dir string) *statedir.Dir {
	t.Helper()
	d, err := statedir.Lock(t.Context(), dir, statedir.Holder{}, nil)
	check.Must(t, err)
	return d
}

// ended returns a state directory as a daemon leaves it that has released everything.
func ended(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	check.Must(t, lock(t, dir).Close())
	check.Must(t, os.Mkdir(filepath.Join(dir, "quarantine"), 0o700))
	for _, name := range []string{"journal.db.new", "plugins.lock", "quarantine/a"} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	return dir
}

// run removes a state directory and what is in quarantine, beside a socket that does not exist.
func run(t *testing.T, dir string) ([]string, error) {
	t.Helper()
	return Run(t.Context(), Options{StateDir: dir, SocketPath: filepath.Join(dir, "none"), DiscardQuarantine: true})
}

func mustRun(t *testing.T, dir string) []string {
	t.Helper()
	removed, err := run(t, dir)
	check.NoError(t, err)
	return removed
}

// wantRefused wants that nothing is removed, and the words of the error.
func wantRefused(t *testing.T, dir string, words ...string) {
	t.Helper()
	removed, err := run(t, dir)
	check.Error(t, err, words...)
	check.Equal(t, "removed", len(removed), 0)
}

func TestRun(t *testing.T) {
	dir := ended(t)
	check.Must(t, os.Symlink(t.TempDir(), filepath.Join(dir, "quarantine/link")))
	removed := mustRun(t, dir)
	if !slices.Contains(removed, filepath.Join(dir, "plugins.lock")) || removed[len(removed)-1] != dir || removed[len(removed)-2] != filepath.Join(dir, "lock") {
		t.Errorf("removed %q", removed)
	}
	check.Absent(t, dir)
	check.Equal(t, "removed again", len(mustRun(t, dir)), 0)
	check.Equal(t, "files beside the directory", check.Names(t, filepath.Dir(dir)), "")

	// An empty directory is removed as it is, with any mode.
	check.Must(t, os.Mkdir(dir, 0o755))
	check.Equal(t, "removed", mustRun(t, dir), []string{dir})
	check.Absent(t, dir)
}

// The temporary file of a killed writer is removed with its directory; an entry is a reason to refuse.
func TestRunSpool(t *testing.T) {
	check.Root(t)
	dir := ended(t)
	s, err := spool.Create(dir)
	check.Must(t, err)
	defer s.Close()
	check.Must(t, os.WriteFile(filepath.Join(dir, "spool/.a.tmp"), nil, 0o600))
	check.Must(t, s.Put(spool.Entry{Network: "pods", ContainerID: "c", IfName: "eth0"}))
	wantRefused(t, dir, "the spool has 1 DELs of containers", `network "pods", container ID c, interface eth0`)
	name := spool.Name("pods", "c", "eth0")
	check.Must(t, os.Remove(filepath.Join(dir, "spool", name)))
	check.Contains(t, strings.Join(mustRun(t, dir), "\n"), filepath.Join(dir, "spool"))
	check.Absent(t, dir)
	check.True(t, s.Put(spool.Entry{}) != nil, "a DEL was added to a removed spool")
}

// Nothing is removed beside a file that is not the daemon's.
func TestRunForeign(t *testing.T) {
	target := filepath.Join(t.TempDir(), "precious")
	check.Must(t, os.WriteFile(target, []byte("x"), 0o600))
	for name, plant := range map[string]func(path string) error{
		"notes":        func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"plugins.lock": func(path string) error { return errors.Join(os.Remove(path), os.Symlink(target, path)) },
		"spool":        func(path string) error { return os.Symlink(filepath.Dir(target), path) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := ended(t)
			check.Must(t, plant(filepath.Join(dir, name)))
			before := check.Names(t, dir)
			wantRefused(t, dir, "1 files do not belong to delegated-ipam", filepath.Join(dir, name))
			check.Equal(t, "files in the directory", check.Names(t, dir), before)
			check.Must(t, os.Remove(filepath.Join(dir, name)))
			mustRun(t, dir)
			check.Absent(t, dir)
		})
	}
	_, err := os.Stat(target)
	check.NoError(t, err)
}

// Nothing is changed in a directory that is not a state directory.
func TestRunNoStateDir(t *testing.T) {
	foreign := t.TempDir()
	check.Must(t, os.Chmod(foreign, 0o755))
	for _, name := range []string{"lock", "packages"} {
		check.Must(t, os.WriteFile(filepath.Join(foreign, name), []byte("x"), 0o644))
	}
	state, link := ended(t), filepath.Join(t.TempDir(), "link")
	check.Must(t, os.Symlink(state, link))
	file := filepath.Join(foreign, "packages")
	for dir, word := range map[string]string{foreign: "not a state directory", link: "symbolic link", file: "not a directory"} {
		wantRefused(t, dir, word)
	}
	info, err := os.Stat(foreign)
	check.Must(t, err)
	check.Equal(t, "mode", info.Mode().Perm(), 0o755)
	check.Equal(t, "files in the directory", check.Names(t, foreign), "lock packages")
	check.Contains(t, check.Names(t, state), "lock")
	if os.Geteuid() == 0 {
		check.Must(t, os.Chown(foreign, 60914, -1))
		wantRefused(t, foreign, "user 60914")
	}
}

// A state directory that is replaced while the command waits for the lock stays, with what has replaced it.
func TestRunReplaced(t *testing.T) {
	for name, replace := range map[string]func(victim, dir string) error{"a symbolic link": os.Symlink, "another directory": os.Rename} {
		t.Run(name, func(t *testing.T) {
			dir := ended(t)
			held := lock(t, dir)
			victim := filepath.Join(t.TempDir(), "victim")
			check.Must(t, errors.Join(os.Mkdir(victim, 0o700), os.WriteFile(filepath.Join(victim, "lock"), []byte("precious"), 0o600)))
			moved := dir + ".moved"
			before := check.Names(t, dir)
			o := Options{StateDir: dir, DiscardQuarantine: true}
			o.OnWait = func(holder string) {
				check.True(t, strings.HasPrefix(holder, "PID "), "the holder is %q", holder)
				check.Must(t, errors.Join(os.Rename(dir, moved), replace(victim, dir), held.Close()))
			}
			got, err := Run(t.Context(), o)
			check.Error(t, err, "leads to "+name)
			check.Equal(t, "removed", len(got), 0)
			content, err := os.ReadFile(filepath.Join(dir, "lock"))
			check.True(t, err == nil && string(content) == "precious", "the file of the target has %q, %v", content, err)
			check.Equal(t, "files of the directory", check.Names(t, moved), before)
		})
	}
}

func TestRunWhileLocked(t *testing.T) {
	dir := ended(t)
	held := lock(t, dir)
	ctx, cancel := context.WithCancelCause(t.Context())
	o := Options{StateDir: dir}
	o.OnWait = func(string) { cancel(errors.New("waited long enough")) }
	got, err := Run(ctx, o)
	check.Error(t, err, "waited long enough", "held by PID ")
	check.Equal(t, "removed", len(got), 0)
	check.Must(t, held.Close())
}

// A mount point cannot be removed.
func TestRunMountPoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	check.Must(t, os.Mkdir(dir, 0o700))
	check.Tmpfs(t, dir, "0700")
	check.Must(t, os.Mkdir(filepath.Join(dir, lostAndFound), 0o700))
	check.Must(t, lock(t, dir).Close())
	for range 2 {
		mustRun(t, dir)
		check.Equal(t, "files in the directory", check.Names(t, dir), lostAndFound)
	}
}
