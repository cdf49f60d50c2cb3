package journal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// removalOptions fit a sidecar on the machine of the records.
func removalOptions() RemoveOptions {
	return RemoveOptions{Options: Options{MachineID: "machine"}, OtherFiles: []string{"plugins.lock"}}
}

// ended returns a state directory as a sidecar leaves it that has released everything: with the
// files that it may have made.
func ended(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	lock, err := Lock(t.Context(), dir, Holder{}, nil)
	must(t, err)
	j, err := Open(dir, Options{MachineID: "machine"})
	must(t, err)
	tombstone := sample("tombstone")
	tombstone.State, tombstone.Claims, tombstone.Expiration, tombstone.Invocations = record.Tombstone, nil, nil, nil
	tombstone.Result.Addresses = nil
	tombstone.LateDel = record.LateDel{Until: time.Now().Add(-time.Second), Seconds: 60}
	write(t, j, tombstone)
	must(t, errors.Join(j.Close(), lock.Unlock()))
	for _, file := range []string{attachmentFile(dir, ".new.json3"), filepath.Join(dir, "plugins.lock")} {
		must(t, os.WriteFile(file, []byte("x"), 0o600))
	}
	return dir
}

// wantGone wants nothing at a path.
func wantGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s exists (%v); want nothing", path, err)
	}
}

func TestRemoveStateDir(t *testing.T) {
	dir := ended(t)
	got, err := RemoveStateDir(t.Context(), dir, removalOptions())
	must(t, err)
	if len(got.Foreign) > 0 || !slices.Contains(got.Removed, filepath.Join(dir, "plugins.lock")) || got.Removed[len(got.Removed)-1] != dir {
		t.Errorf("got %+v", got)
	}
	wantGone(t, dir)
	if got, err := RemoveStateDir(t.Context(), dir, removalOptions()); err != nil || len(got.Removed) > 0 {
		t.Errorf("again: %+v, %v; want nothing", got, err)
	}
	if entries := entryNames(t, filepath.Dir(dir)); len(entries) > 0 {
		t.Errorf("the second removal has created %q", entries)
	}
}

func TestRemoveStateDirKept(t *testing.T) {
	dir := ended(t)
	o := removalOptions()
	o.KeepDir = true
	must(t, os.Mkdir(filepath.Join(dir, lostAndFound), 0o700))
	for range 2 {
		if got, err := RemoveStateDir(t.Context(), dir, o); err != nil || len(got.Foreign) > 0 {
			t.Errorf("got %+v, %v", got, err)
		}
		if names := entryNames(t, dir); !slices.Equal(names, []string{lostAndFound}) {
			t.Errorf("the directory has %q", names)
		}
	}
}

func TestRemoveStateDirInUse(t *testing.T) {
	for name, tt := range map[string]struct {
		make  func(t *testing.T, dir string, j *Journal)
		words []string
	}{
		"held": {func(t *testing.T, _ string, j *Journal) { write(t, j, sample("a")) }, []string{"1 attachments", "kube-system/a", "held", "10.1.0.7", "delegated-ipam release --all --yes"}},
		"unfinished ADD": {func(t *testing.T, _ string, j *Journal) {
			r := sample("a")
			r.State, r.Claims, r.Expiration = record.Adding, nil, nil
			r.Result.Addresses = nil
			write(t, j, r)
		}, []string{"kube-system/a", "adding"}},
		"unfinished DEL": {func(t *testing.T, _ string, j *Journal) {
			r := sample("a")
			r.State, r.Claims, r.Expiration = record.Releasing, nil, nil
			write(t, j, r)
		}, []string{"kube-system/a", "releasing"}},
		"late DEL": {func(t *testing.T, _ string, j *Journal) {
			r := sample("a")
			r.State, r.Claims, r.Expiration, r.Invocations, r.Result.Addresses = record.Tombstone, nil, nil, nil, nil
			r.LateDel = record.LateDel{Until: time.Now().Add(time.Hour), Seconds: 3600}
			write(t, j, r)
		}, []string{"the outcome of 1 DELs", "kube-system/a", "again later"}},
		"newer version": {func(t *testing.T, dir string, _ *Journal) {
			must(t, os.WriteFile(attachmentFile(dir, "a.json"), []byte(`{"version":99,"record":{"owner":"o","pool":"p"}}`+"\n"), 0o600))
		}, []string{"a.json", "version 99", "newer delegated-ipam"}},
		"damaged": {func(t *testing.T, dir string, _ *Journal) {
			must(t, os.WriteFile(attachmentFile(dir, "a.json"), []byte("{"), 0o600))
		}, []string{"quarantine/ has 1 files", "a.json", "--discard-quarantine"}},
		"quarantined before": {func(t *testing.T, dir string, _ *Journal) {
			must(t, os.WriteFile(filepath.Join(dir, quarantineName, "b.json"), []byte("{"), 0o600))
		}, []string{"quarantine/ has 1 files", "b.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := ended(t)
			j := open(t, dir)
			tt.make(t, dir, j)
			before := entryNames(t, dir)
			_, err := RemoveStateDir(t.Context(), dir, removalOptions())
			if _, ok := errors.AsType[*InUseError](err); !ok {
				t.Fatalf("got %v; want an *InUseError", err)
			}
			for _, word := range append(tt.words, dir) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q lacks %q", err, word)
				}
			}
			if after := entryNames(t, dir); !slices.Equal(before, after) {
				t.Errorf("the directory has %q; want %q", after, before)
			}
		})
	}
}

// A clock that was set back does not extend the time of a late DEL.
func TestLateUntil(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		late record.LateDel
		want time.Time
	}{
		{record.LateDel{}, time.Time{}},
		{record.LateDel{Until: now.Add(time.Minute), Seconds: 3600}, now.Add(time.Minute)},
		{record.LateDel{Until: now.Add(24 * time.Hour), Seconds: 60}, now.Add(time.Minute)},
	} {
		if got := lateUntil(tt.late, now); !got.Equal(tt.want) {
			t.Errorf("%+v: %v; want %v", tt.late, got, tt.want)
		}
	}
}

func TestRemoveQuarantine(t *testing.T) {
	dir := ended(t)
	must(t, os.WriteFile(attachmentFile(dir, "a.json"), []byte("{"), 0o600))
	must(t, os.MkdirAll(attachmentFile(dir, "directory/of another"), 0o700))
	target := filepath.Join(t.TempDir(), "precious")
	must(t, os.WriteFile(target, []byte("x"), 0o600))
	must(t, os.Symlink(target, attachmentFile(dir, "link.json")))
	o := removalOptions()
	o.DiscardQuarantine = true
	got, err := RemoveStateDir(t.Context(), dir, o)
	must(t, err)
	// The directory is not a file that the program made.
	if want := []string{filepath.Join(dir, quarantineName, "directory"), filepath.Join(dir, quarantineName)}; !slices.Equal(got.Foreign, want) {
		t.Errorf("foreign are %q; want %q", got.Foreign, want)
	}
	if _, err := os.Stat(target); err != nil {
		t.Errorf("the target of a link: %v", err)
	}
	must(t, os.RemoveAll(filepath.Join(dir, quarantineName, "directory")))
	if got, err := RemoveStateDir(t.Context(), dir, o); err != nil || len(got.Foreign) > 0 {
		t.Errorf("again: %+v, %v", got, err)
	}
	wantGone(t, dir)
}

func TestRemoveForeign(t *testing.T) {
	target := filepath.Join(t.TempDir(), "precious")
	must(t, os.WriteFile(target, []byte("x"), 0o600))
	for name, plant := range map[string]func(path string) error{
		"notes":        func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"plugins.lock": func(path string) error { return errors.Join(os.Remove(path), os.Symlink(target, path)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := ended(t)
			planted := filepath.Join(dir, name)
			must(t, plant(planted))
			got, err := RemoveStateDir(t.Context(), dir, removalOptions())
			if err != nil || !slices.Equal(got.Foreign, []string{planted}) {
				t.Errorf("got %+v, %v; want %s to be foreign", got, err, planted)
			}
			if names := entryNames(t, dir); !slices.Equal(names, []string{name}) {
				t.Errorf("the directory has %q; want %s", names, name)
			}
			if content, err := os.ReadFile(target); err != nil || string(content) != "x" {
				t.Errorf("the target of the link has %q, %v", content, err)
			}
		})
	}
}

// Nothing is changed in a directory that is not a state directory.
func TestRemoveNoStateDir(t *testing.T) {
	foreign := t.TempDir()
	must(t, os.Chmod(foreign, 0o755))
	for _, name := range []string{lockName, "packages"} {
		must(t, os.WriteFile(filepath.Join(foreign, name), []byte("x"), 0o644))
	}
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(ended(t), link))
	file := filepath.Join(foreign, "packages")
	for dir, word := range map[string]string{foreign: "not a state directory", link: "symbolic link", file: "not a directory", "": "empty path"} {
		if got, err := RemoveStateDir(t.Context(), dir, removalOptions()); err == nil || !strings.Contains(err.Error(), word) || len(got.Removed) > 0 {
			t.Errorf("%q: %+v, %v; want an error with %q", dir, got, err, word)
		}
	}
	if info, err := os.Stat(foreign); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the mode is %v, %v; want 0755", info.Mode(), err)
	}
	if names := entryNames(t, foreign); !slices.Equal(names, []string{lockName, "packages"}) {
		t.Errorf("the directory has %q", names)
	}
	target, err := os.Readlink(link)
	must(t, err)
	if names := entryNames(t, target); !slices.Contains(names, lockName) {
		t.Errorf("the target of the link has %q", names)
	}
	if os.Geteuid() == 0 {
		must(t, os.Chown(foreign, 60914, -1))
		if _, err := RemoveStateDir(t.Context(), foreign, removalOptions()); err == nil || !strings.Contains(err.Error(), "user 60914") {
			t.Errorf("of another user: %v", err)
		}
	}
}

// An empty directory is removed as it is, with any mode.
func TestRemoveEmptyDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	must(t, os.Mkdir(dir, 0o755))
	got, err := RemoveStateDir(t.Context(), dir, removalOptions())
	if err != nil || !slices.Equal(got.Removed, []string{dir}) {
		t.Errorf("got %+v, %v", got, err)
	}
	wantGone(t, dir)
}

// A state directory that is replaced while the command waits for the lock stays.
func TestRemoveReplaced(t *testing.T) {
	dir := ended(t)
	lock, err := Lock(t.Context(), dir, Holder{}, nil)
	must(t, err)
	victim := t.TempDir()
	must(t, os.WriteFile(filepath.Join(victim, lockName), []byte("precious"), 0o600))
	moved := dir + ".moved"
	o := removalOptions()
	o.OnWait = func(holder string) {
		if !strings.HasPrefix(holder, "PID ") {
			t.Errorf("the holder is %q", holder)
		}
		must(t, errors.Join(os.Rename(dir, moved), os.Symlink(victim, dir), lock.Unlock()))
	}
	got, err := RemoveStateDir(t.Context(), dir, o)
	if err == nil || !strings.Contains(err.Error(), "symbolic link") || len(got.Removed) > 0 {
		t.Errorf("got %+v, %v; want an error", got, err)
	}
	if content, err := os.ReadFile(filepath.Join(victim, lockName)); err != nil || string(content) != "precious" {
		t.Errorf("the file of the target has %q, %v", content, err)
	}
	if names := entryNames(t, moved); !slices.Contains(names, lockName) {
		t.Errorf("the moved state directory has %q", names)
	}
}

func TestRemoveWhileLocked(t *testing.T) {
	dir := ended(t)
	lock, err := Lock(t.Context(), dir, Holder{}, nil)
	must(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	o := removalOptions()
	o.OnWait = func(string) { cancel(errors.New("waited long enough")) }
	if got, err := RemoveStateDir(ctx, dir, o); err == nil || !strings.Contains(err.Error(), "waited long enough") || !strings.Contains(err.Error(), "held by PID ") || len(got.Removed) > 0 {
		t.Errorf("got %+v, %v; want an error with the holder", got, err)
	}
	must(t, lock.Unlock())
}

// A mount point cannot be removed, even if the caller does not know that it is one.
func TestRemoveMountPoint(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := filepath.Join(t.TempDir(), "state")
	must(t, os.Mkdir(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700"); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	defer func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) }()
	open(t, dir)
	for range 2 {
		if got, err := RemoveStateDir(t.Context(), dir, removalOptions()); err != nil || len(got.Foreign) > 0 {
			t.Errorf("got %+v, %v", got, err)
		}
		if names := entryNames(t, dir); len(names) > 0 {
			t.Errorf("the directory has %q", names)
		}
	}
}
