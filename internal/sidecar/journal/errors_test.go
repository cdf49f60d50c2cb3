package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// mountReadOnly mounts a file system with what prepare makes in it, and makes it read-only.
func mountReadOnly(t *testing.T, mode string, prepare func(dir string)) string {
	t.Helper()
	dir := t.TempDir()
	check.Tmpfs(t, dir, mode)
	prepare(dir)
	check.Must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	return dir
}

// The error has the full path, each fact once, and what to do.
func TestReadOnly(t *testing.T) {
	const remedy = "read-only file system; mount its file system writable, or configure another directory (--state-dir)"
	locked := func(dir string) error {
		l, err := Lock(t.Context(), dir, Holder{}, nil)
		if err == nil {
			err = l.Unlock()
		}
		return err
	}
	opened := func(dir string) error {
		j, err := Open(dir, Options{})
		if err == nil {
			err = j.Close()
		}
		return err
	}
	removed := func(dir string) error {
		_, err := RemoveStateDir(t.Context(), dir, removalOptions())
		return err
	}
	empty := func(string) {}
	used := func(dir string) { check.Must(t, opened(dir)) }
	withMode := func(name string, mode os.FileMode) func(dir string) {
		return func(dir string) {
			used(dir)
			check.Must(t, os.Chmod(filepath.Join(dir, name), mode))
		}
	}
	for name, tt := range map[string]struct {
		mode    string
		prepare func(dir string)
		call    func(dir string) error
		want    string
	}{
		"mode":   {"0755", empty, locked, "state directory DIR: mode 0755 cannot be changed to 0700: "},
		"parent": {"0755", empty, func(dir string) error { return locked(dir + "/a/b") }, "state directory DIR/a/b: mkdir DIR/a: "},
		"lock":   {"0700", empty, locked, "lock DIR/lock: open: "},
		"subdirectory": {"0700", func(dir string) {
			used(dir)
			check.Must(t, os.Remove(filepath.Join(dir, attachmentsName)))
		}, opened, "directory DIR/attachments: mkdir: "},
		"mode of a subdirectory": {"0700", withMode(attachmentsName, 0o750), opened, "directory DIR/attachments: mode 0750 cannot be changed to 0700: "},
		"removal":                {"0755", withMode(".", 0o755), removed, "state directory DIR: mode 0755 cannot be changed to 0700: "},
		"removal, lock":          {"0700", used, removed, "lock DIR/lock: open: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := mountReadOnly(t, tt.mode, tt.prepare)
			want := strings.ReplaceAll(tt.want, "DIR", dir) + remedy
			if err := tt.call(dir); err == nil || err.Error() != want || !errors.Is(err, syscall.EROFS) {
				t.Errorf("got\n%v; want\n%s", err, want)
			}
		})
	}
}

// changed is sample("a") with another field.
func changed() record.Record {
	r := sample("a")
	r.Node = "changed"
	return r
}

func TestReadOnlyJournal(t *testing.T) {
	const remedy = "; mount its file system writable, or configure another directory (--state-dir)"
	var j *Journal
	dir := mountReadOnly(t, "0700", func(dir string) {
		j = open(t, dir)
		write(t, j, sample("a"))
		check.Must(t, j.Writable())
		check.Equal(t, "attachments/", check.Names(t, attachmentFile(dir, "")), "a.json")
		check.Must(t, os.WriteFile(attachmentFile(dir, "b.json"), nil, 0o600))
	})
	for want, err := range map[string]error{
		"state directory: DIR/attachments cannot be written: read-only file system" + remedy:                   j.Writable(),
		`record a.json: remove DIR/attachments/a.json: read-only file system`:                                  j.Remove("a"),
		"unusable record: rename DIR/attachments/b.json DIR/quarantine/b.json: read-only file system" + remedy: j.inUse(false),
	} {
		if want = strings.ReplaceAll(want, "DIR", dir); err == nil || err.Error() != want {
			t.Errorf("got\n%v; want\n%s", err, want)
		}
	}
	check.Error(t, j.Write(changed()), `"a": open `+attachmentFile(dir, ".new.json")) // and a number
	ofContainer := changed()
	ofContainer.Invocations[0].ContainerID = "0a1b" // the runtime's
	check.Error(t, j.Write(ofContainer), `record of container ID "0a1b": open `)
	ofContainer.State = "unknown"
	check.Error(t, j.Write(ofContainer), `record of container ID 0a1b: unknown state`)
	check.Equal(t, "records", load(t, j).Records, []record.Record{sample("a")})
}

func TestReadOnlyDir(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	write(t, j, sample("a"))
	check.Must(t, os.Chmod(attachmentFile(dir, ""), 0o500))
	t.Cleanup(func() { check.Must(t, os.Chmod(attachmentFile(dir, ""), 0o700)) })
	errs := map[string]error{}
	withoutPrivileges(t, func() {
		errs["Write"], errs["Remove"], errs["Writable"] = j.Write(sample("b")), j.Remove("a"), j.Writable()
	})
	for what, err := range errs {
		check.True(t, errors.Is(err, syscall.EACCES), "%s: %v; want %v", what, err, syscall.EACCES)
	}
	check.Equal(t, "records", load(t, j).Records, []record.Record{sample("a")})
}

func TestRemoveWithoutDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	check.Must(t, os.WriteFile(file, nil, 0o600))
	dir := filepath.Join(file, "state")
	_, err := RemoveStateDir(t.Context(), dir, removalOptions())
	want := "state directory " + dir + ": lstat: not a directory; configure another directory (--state-dir)"
	check.Equal(t, "error", fmt.Sprint(err), want)
}
