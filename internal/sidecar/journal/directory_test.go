package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

//evidence:operate/security a wider mode
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "parent", "state")
	check.Must(t, os.MkdirAll(filepath.Join(dir, quarantineName), 0o755))
	write(t, open(t, dir), sample("a"))
	for path, want := range map[string]os.FileMode{
		dir:                                 os.ModeDir | 0o700,
		filepath.Join(dir, attachmentsName): os.ModeDir | 0o700,
		filepath.Join(dir, quarantineName):  os.ModeDir | 0o700,
		attachmentFile(dir, "a.json"):       0o600,
	} {
		info, err := os.Lstat(path)
		check.Must(t, err)
		check.Equal(t, "mode of "+path, info.Mode(), want)
	}
}

//evidence:operate/security a state directory of another user; a link to or in it
func TestOpenRefused(t *testing.T) {
	for name, c := range map[string]struct {
		plant  func(t *testing.T, dir string)
		want   string
		inside bool // CheckDir does not see it
	}{
		"symbolic link": {func(t *testing.T, dir string) { check.Must(t, os.Symlink(t.TempDir(), dir)) }, "symbolic link", false},
		"file":          {func(t *testing.T, dir string) { check.Must(t, os.WriteFile(dir, nil, 0o600)) }, "not a directory", false},
		"attachments is a symbolic link": {func(t *testing.T, dir string) {
			check.Must(t, os.Mkdir(dir, 0o700))
			check.Must(t, os.Symlink(t.TempDir(), filepath.Join(dir, attachmentsName)))
		}, "symbolic link", true},
		"quarantine is a file": {func(t *testing.T, dir string) {
			check.Must(t, os.Mkdir(dir, 0o700))
			check.Must(t, os.WriteFile(filepath.Join(dir, quarantineName), nil, 0o600))
		}, "not a directory", true},
		"other user": {func(t *testing.T, dir string) {
			check.Root(t)
			check.Must(t, os.Mkdir(dir, 0o700))
			check.Must(t, os.Chown(dir, 12345, -1))
		}, "owned by user 12345", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			c.plant(t, dir)
			if err := CheckDir(dir); c.inside {
				check.NoError(t, err)
			} else {
				check.Error(t, err, dir, c.want)
			}
			j, err := Open(dir, Options{})
			if err == nil {
				_ = j.Close()
				t.Fatal("opened")
			}
			check.Error(t, err, c.want)
			check.Equal(t, "number of paths in "+err.Error(), strings.Count(err.Error(), dir), 1)
		})
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 256))
	_, err := Open(long, Options{})
	check.Equal(t, "error", fmt.Sprint(err), "state directory "+long+": mkdir: file name too long; configure another directory (--state-dir)")
	_, err = Open("", Options{})
	check.Error(t, err)
}

func TestCheckDir(t *testing.T) {
	dir := t.TempDir()
	file, none := filepath.Join(dir, "file"), filepath.Join(dir, "none")
	check.Must(t, os.WriteFile(file, nil, 0o600))
	check.NoError(t, CheckDir(dir))
	check.NoError(t, CheckDir(none))
	check.Absent(t, none)
	check.Error(t, CheckDir(filepath.Join(file, "x")), "not a directory")
}

func treeOf(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	check.Must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		all = append(all, path)
		return err
	}))
	return all
}

// callAll calls every method that needs the state directory, and returns the errors by name.
func callAll(j *Journal) map[string]error {
	_, quarantinedErr := j.Quarantined()
	_, loadErr := j.Load()
	return map[string]error{
		"Available": j.Available(), "Write": j.Write(sample("b")), "Remove": j.Remove("a"), "Writable": j.Writable(),
		"Quarantined": quarantinedErr, "Load": loadErr,
	}
}

func TestReplaced(t *testing.T) {
	const another = "another directory or file system"
	nothing := func(string) error { return nil }
	file := func(path string) error { return os.WriteFile(path, nil, 0o600) }
	dir := func(path string) error { return os.Mkdir(path, 0o700) }
	copied := func(path string) error { return os.CopyFS(path, os.DirFS(path+".away")) }
	link := func(path string) error { return os.Symlink(path+".away", path) }
	for name, tt := range map[string]struct {
		path    string // is moved away
		replace func(path string) error
		want    string // in the error
	}{
		"no state directory":          {".", nothing, "no such file or directory"},
		"other state directory":       {".", dir, another},
		"copy of the state directory": {".", copied, another},
		"file":                        {".", file, "another file"},
		"link to the state directory": {".", link, "a symbolic link"},
		"no parent":                   {"..", nothing, "no such file or directory"},
		"parent is a file":            {"..", file, "not a directory"},
		"no attachments":              {attachmentsName, nothing, "attachments: no such file or directory"},
		"other attachments":           {attachmentsName, dir, "attachments leads to " + another},
		"link to the attachments":     {attachmentsName, link, "attachments leads to a symbolic link"},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "parent", "state")
			j := open(t, dir)
			write(t, j, sample("a"))
			path := filepath.Join(dir, tt.path)
			check.Must(t, os.Rename(path, path+".away"))
			check.Must(t, tt.replace(path))
			before := treeOf(t, top)

			for what, err := range callAll(j) {
				check.True(t, errors.Is(err, errReplaced), "%s: %v; want errReplaced", what, err)
				check.Error(t, err, tt.want, dir, fileID(j.state.info))
			}
			check.Equal(t, "files", treeOf(t, top), before)

			check.Must(t, os.RemoveAll(path))
			check.Must(t, os.Rename(path+".away", path))
			check.Must(t, j.Available())
			check.Must(t, j.Writable())
			write(t, j, sample("b"))
			check.Equal(t, "loaded", load(t, j), Loaded{Records: []record.Record{sample("a"), sample("b")}})
		})
	}
}

// It may be the right directory, so the error is not errReplaced.
func TestAvailableUnknown(t *testing.T) {
	parent := t.TempDir()
	j := open(t, filepath.Join(parent, "state"))
	check.Must(t, os.Chmod(parent, 0))
	t.Cleanup(func() { check.Must(t, os.Chmod(parent, 0o700)) })
	var err error
	withoutPrivileges(t, func() { err = j.Available() })
	if !errors.Is(err, syscall.EACCES) || errors.Is(err, errReplaced) {
		t.Errorf("got %v; want %v and not errReplaced", err, syscall.EACCES)
	}
}

func TestReplacedDuringChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, j *Journal) error{
		"write":     func(_ *testing.T, j *Journal) error { return j.write("b", []byte("{}")) },
		"overwrite": func(_ *testing.T, j *Journal) error { return j.write("a", []byte("{}")) },
		"removal":   func(_ *testing.T, j *Journal) error { return j.remove("a", false) },
		"probe":     func(_ *testing.T, j *Journal) error { return j.probe() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			j := open(t, dir)
			write(t, j, sample("a"))
			err := j.whileAvailable(func() error {
				check.Must(t, os.Rename(dir, dir+".away"))
				check.Must(t, os.Mkdir(dir, 0o700))
				return change(t, j)
			})
			check.True(t, errors.Is(err, errReplaced), "got %v; want errReplaced", err)
			check.Equal(t, "files in the new directory", check.Names(t, dir), "")
		})
	}
}

// An fsync leaves no trace that a test could see without a power loss, but procfs refuses it.
func TestSyncDir(t *testing.T) {
	root, err := os.OpenRoot("/proc/self")
	check.Must(t, err)
	defer root.Close()
	for name, err := range map[string]error{"syncDir": syncDir(&directory{Root: root}), "syncPath": syncPath("/proc/self")} {
		check.True(t, errors.Is(err, syscall.EINVAL), "%s of a directory that cannot be synced: %v", name, err)
	}
}

func hostWith(t *testing.T, files map[string]string) Host {
	t.Helper()
	h := Host{Root: t.TempDir()}
	for name, content := range files {
		path := filepath.Join(h.Root, name)
		check.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check.Must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return h
}

func TestMachineID(t *testing.T) {
	const machineID, productUUID = "etc/machine-id", "sys/class/dmi/id/product_uuid"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"machine ID":       {map[string]string{machineID: "abc\n", productUUID: "DEF\n"}, "abc"},
		"product UUID":     {map[string]string{productUUID: "DEF\n"}, "def"},
		"empty machine ID": {map[string]string{machineID: "\n", productUUID: "DEF"}, "def"},
		"uninitialized":    {map[string]string{machineID: "uninitialized\n"}, ""},
		"neither":          {nil, ""},
	} {
		check.Equal(t, "machine ID, "+name, hostWith(t, c.files).MachineID(), c.want)
	}
}

func TestBootID(t *testing.T) {
	const file = "proc/sys/kernel/random/boot_id"
	if got, err := hostWith(t, map[string]string{file: "b00t\n"}).BootID(); err != nil || got != "b00t" {
		t.Errorf("got %q, %v", got, err)
	}
	for name, files := range map[string]map[string]string{"empty": {file: "\n"}, "none": nil} {
		got, err := hostWith(t, files).BootID()
		check.True(t, err != nil, "file %s: %q; want an error", name, got)
	}
	if got, err := (Host{}).BootID(); err != nil || len(got) != 36 {
		t.Errorf("this boot: %q, %v", got, err)
	}
}
