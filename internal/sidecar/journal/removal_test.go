package journal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// removalOptions fit a sidecar on the machine of the records.
func removalOptions() RemoveOptions {
	return RemoveOptions{Options: Options{MachineID: "machine"}, OtherFiles: []string{"plugins.lock"}}
}

func inState(state record.State) record.Record {
	r := sample("a")
	r.State, r.Claims, r.Expiration = state, nil, nil
	return r
}

// tombstone returns the record of a DEL that may act for a time from now on.
func tombstone(rest time.Duration, seconds int) record.Record {
	r := inState(record.Tombstone)
	r.Invocations, r.Result.Addresses = nil, nil
	r.LateDel = record.LateDel{Until: time.Now().Add(rest), Seconds: seconds}
	return r
}

// ended returns a state directory as a sidecar leaves it that has released everything.
func ended(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	lock := lockDir(t, dir)
	j, err := Open(dir, Options{MachineID: "machine"})
	check.Must(t, err)
	write(t, j, tombstone(-time.Second, 60))
	check.Must(t, errors.Join(j.Close(), lock.Unlock()))
	for _, file := range []string{attachmentFile(dir, ".new.json3"), filepath.Join(dir, "plugins.lock")} {
		check.Must(t, os.WriteFile(file, []byte("x"), 0o600))
	}
	return dir
}

// wantRemoval wants a removal that leaves these files and no others, all of them foreign.
func wantRemoval(t *testing.T, dir string, o RemoveOptions, foreign ...string) Removal {
	t.Helper()
	got, err := RemoveStateDir(t.Context(), dir, o)
	check.NoError(t, err)
	check.True(t, slices.Equal(got.Foreign, foreign), "foreign are %q; want %q", got.Foreign, foreign)
	return got
}

func TestRemoveStateDir(t *testing.T) {
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

func TestRemoveStateDirKept(t *testing.T) {
	dir := ended(t)
	o := removalOptions()
	o.KeepDir = true
	check.Must(t, os.Mkdir(filepath.Join(dir, lostAndFound), 0o700))
	for range 2 {
		wantRemoval(t, dir, o)
		check.Equal(t, "files in the directory", check.Names(t, dir), lostAndFound)
	}
}

func TestRemoveStateDirInUse(t *testing.T) {
	file := func(name, content string) func(t *testing.T, dir string, _ *Journal) {
		return func(t *testing.T, dir string, _ *Journal) {
			check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
	}
	written := func(r record.Record) func(t *testing.T, _ string, j *Journal) {
		return func(t *testing.T, _ string, j *Journal) { write(t, j, r) }
	}
	adding := inState("adding")
	adding.Result.Addresses = nil
	newer := `{"version":99,"record":{"owner":"o","pool":"p"}}` + "\n"
	for name, tt := range map[string]struct {
		make  func(t *testing.T, dir string, j *Journal)
		words []string
	}{
		"held":               {written(sample("a")), []string{"1 attachments", "kube-system/a", "held", "10.1.0.7", "delegated-ipam release --all --yes"}},
		"unfinished ADD":     {written(adding), []string{"kube-system/a", "adding"}},
		"unfinished DEL":     {written(inState("releasing")), []string{"kube-system/a", "releasing"}},
		"late DEL":           {written(tombstone(time.Hour, 3600)), []string{"the outcome of 1 DELs", "kube-system/a", "again later"}},
		"newer version":      {file("attachments/a.json", newer), []string{"a.json", "version 99", "newer delegated-ipam"}},
		"damaged":            {file("attachments/a.json", "{"), []string{"quarantine/ has 1 files", "a.json", "--discard-quarantine"}},
		"quarantined before": {file("quarantine/b.json", "{"), []string{"quarantine/ has 1 files", "b.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := ended(t)
			tt.make(t, dir, open(t, dir))
			before := check.Names(t, dir)
			_, err := RemoveStateDir(t.Context(), dir, removalOptions())
			if _, ok := errors.AsType[*InUseError](err); !ok {
				t.Fatalf("got %v; want an *InUseError", err)
			}
			check.Error(t, err, append(tt.words, dir)...)
			check.Equal(t, "files in the directory", check.Names(t, dir), before)
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
		got := lateUntil(tt.late, now)
		check.True(t, got.Equal(tt.want), "%+v: %v; want %v", tt.late, got, tt.want)
	}
}

func TestRemoveQuarantine(t *testing.T) {
	dir := ended(t)
	check.Must(t, os.WriteFile(attachmentFile(dir, "a.json"), []byte("{"), 0o600))
	check.Must(t, os.MkdirAll(attachmentFile(dir, "directory/of another"), 0o700))
	target := filepath.Join(t.TempDir(), "precious")
	check.Must(t, os.WriteFile(target, []byte("x"), 0o600))
	check.Must(t, os.Symlink(target, attachmentFile(dir, "link.json")))
	o := removalOptions()
	o.DiscardQuarantine = true
	quarantine := filepath.Join(dir, quarantineName)
	wantRemoval(t, dir, o, filepath.Join(quarantine, "directory"), quarantine) // not a file that the program made
	_, err := os.Stat(target)
	check.NoError(t, err)
	check.Must(t, os.RemoveAll(filepath.Join(quarantine, "directory")))
	wantRemoval(t, dir, o)
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
		got, err := RemoveStateDir(t.Context(), dir, removalOptions())
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
		check.Must(t, errors.Join(os.Rename(dir, moved), os.Symlink(victim, dir), lock.Unlock()))
	}
	got, err := RemoveStateDir(t.Context(), dir, o)
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
	got, err := RemoveStateDir(ctx, dir, o)
	check.Error(t, err, "waited long enough", "held by PID ")
	check.Equal(t, "removed", len(got.Removed), 0)
	check.Must(t, lock.Unlock())
}

// A mount point cannot be removed, even if the caller does not know that it is one.
func TestRemoveMountPoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	check.Must(t, os.Mkdir(dir, 0o700))
	check.Tmpfs(t, dir, "0700")
	open(t, dir)
	for range 2 {
		wantRemoval(t, dir, removalOptions())
		check.Equal(t, "files in the directory", check.Names(t, dir), "")
	}
}

// wantSynced fails the test unless every removal is durable, or none is.
func wantSynced(t *testing.T, j *Journal, want bool) {
	t.Helper()
	j.removals.mu.Lock()
	defer j.removals.mu.Unlock()
	check.Equal(t, "removals are durable", j.removals.synced == j.removals.done, want)
}

// A removal that is not durable becomes durable with the next change, a moment later, or at the end.
func TestRemoveSoon(t *testing.T) {
	for name, sync := range map[string]func(t *testing.T, j *Journal){
		"write":   func(t *testing.T, j *Journal) { write(t, j, sample("b")) },
		"removal": func(t *testing.T, j *Journal) { check.Must(t, j.Remove("missing")) },
		"a moment": func(*testing.T, *Journal) {
			time.Sleep(removalSyncDelay)
			synctest.Wait()
		},
		"close": func(t *testing.T, j *Journal) { check.Must(t, j.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				j := open(t, dir)
				for range 2 { // the second needs another timer
					write(t, j, sample("a"))
					check.Must(t, j.RemoveSoon("a"))
					check.Absent(t, attachmentFile(dir, "a.json"))
					wantSynced(t, j, false)
					sync(t, j)
					if wantSynced(t, j, true); name == "close" {
						return
					}
				}
			})
		})
	}
	t.Run("sync that began before the removal", func(t *testing.T) {
		var r removals
		before := r.count()
		r.add(func() {})
		r.durable(before, nil)
		r.stopTimer()
		check.True(t, r.pending(), "the removal counts as durable")
	})
	t.Run("no such record", func(t *testing.T) {
		j := open(t, t.TempDir())
		check.Must(t, j.RemoveSoon("a"))
		check.Error(t, j.RemoveSoon("../x"))
	})
}
