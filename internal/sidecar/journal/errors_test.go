package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mountReadOnly mounts a file system with what prepare makes in it, and makes it read-only.
func mountReadOnly(t *testing.T, mode string, prepare func(t *testing.T, dir string)) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode="+mode); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	prepare(t, dir)
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	return dir
}

// The error has the full path, each fact once, and what to do.
func TestReadOnly(t *testing.T) {
	const remedy = "read-only file system; mount its file system writable, or configure another directory (--state-dir)"
	locked := func(t *testing.T, dir string) error {
		t.Helper()
		l, err := Lock(t.Context(), dir, Holder{}, nil)
		if err == nil {
			err = l.Unlock()
		}
		return err
	}
	opened := func(_ *testing.T, dir string) error {
		j, err := Open(dir, Options{})
		if err == nil {
			err = j.Close()
		}
		return err
	}
	removed := func(t *testing.T, dir string) error {
		t.Helper()
		_, err := RemoveStateDir(t.Context(), dir, removalOptions())
		return err
	}
	empty := func(*testing.T, string) {}
	used := func(t *testing.T, dir string) {
		t.Helper()
		must(t, opened(t, dir))
	}
	for name, tt := range map[string]struct {
		mode    string
		prepare func(t *testing.T, dir string)
		call    func(t *testing.T, dir string) error
		want    string
	}{
		"mode":   {"0755", empty, locked, "state directory DIR: mode 0755 cannot be changed to 0700: " + remedy},
		"parent": {"0755", empty, func(t *testing.T, dir string) error { t.Helper(); return locked(t, dir+"/a/b") }, "state directory DIR/a/b: mkdir DIR/a: " + remedy},
		"lock":   {"0700", empty, locked, "lock DIR/lock: open: " + remedy},
		"subdirectory": {"0700", func(t *testing.T, dir string) {
			t.Helper()
			used(t, dir)
			must(t, os.Remove(filepath.Join(dir, attachmentsName)))
		}, opened, "directory DIR/attachments: mkdir: " + remedy},
		"mode of a subdirectory": {"0700", func(t *testing.T, dir string) {
			t.Helper()
			used(t, dir)
			must(t, os.Chmod(filepath.Join(dir, attachmentsName), 0o750))
		}, opened, "directory DIR/attachments: mode 0750 cannot be changed to 0700: " + remedy},
		"removal": {"0755", func(t *testing.T, dir string) {
			t.Helper()
			used(t, dir)
			must(t, os.Chmod(dir, 0o755))
		}, removed, "state directory DIR: mode 0755 cannot be changed to 0700: " + remedy},
		"removal, lock": {"0700", used, removed, "lock DIR/lock: open: " + remedy},
	} {
		t.Run(name, func(t *testing.T) {
			dir := mountReadOnly(t, tt.mode, tt.prepare)
			want := strings.ReplaceAll(tt.want, "DIR", dir)
			if err := tt.call(t, dir); err == nil || err.Error() != want || !errors.Is(err, syscall.EROFS) {
				t.Errorf("got\n%v; want\n%s", err, want)
			}
		})
	}
}

func TestReadOnlyJournal(t *testing.T) {
	const remedy = "; mount its file system writable, or configure another directory (--state-dir)"
	var j *Journal
	dir := mountReadOnly(t, "0700", func(t *testing.T, dir string) {
		t.Helper()
		j = open(t, dir)
		write(t, j, sample("a"))
		must(t, os.WriteFile(attachmentFile(dir, "b.json"), nil, 0o600))
	})
	for want, err := range map[string]error{
		"state directory: DIR/attachments cannot be written: read-only file system" + remedy:                   j.Writable(),
		`record of container ID "a": remove DIR/attachments/a.json: read-only file system`:                     j.Remove("a"),
		"unusable record: rename DIR/attachments/b.json DIR/quarantine/b.json: read-only file system" + remedy: j.inUse(false),
	} {
		if want = strings.ReplaceAll(want, "DIR", dir); err == nil || err.Error() != want {
			t.Errorf("got\n%v; want\n%s", err, want)
		}
	}
	if err := j.Write(sample("a")); err == nil || !strings.Contains(err.Error(), `"a": open `+attachmentFile(dir, ".new.json")) {
		t.Errorf("got %v; want the path of the temporary file", err)
	}
}

func TestRemoveWithoutDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	dir := filepath.Join(file, "state")
	want := "state directory " + dir + ": lstat: not a directory; configure another directory (--state-dir)"
	if _, err := RemoveStateDir(t.Context(), dir, removalOptions()); err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
}
