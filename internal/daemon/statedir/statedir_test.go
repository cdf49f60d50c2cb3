package statedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

//evidence:operate/security a wider mode
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "parent", "state")
	check.Must(t, lockDir(t, dir).Close())
	check.Must(t, os.Chmod(dir, 0o755))
	check.Must(t, lockDir(t, dir).Close())
	for path, want := range map[string]os.FileMode{
		filepath.Dir(dir):            os.ModeDir | 0o755,
		dir:                          os.ModeDir | 0o700,
		filepath.Join(dir, LockName): 0o600,
	} {
		info, err := os.Lstat(path)
		check.Must(t, err)
		check.Equal(t, "mode of "+path, info.Mode(), want)
	}
}

//evidence:operate/security a state directory of another user; a link to or in it
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(t *testing.T, dir string)
		want  string
	}{
		"symbolic link": {func(t *testing.T, dir string) { check.Must(t, os.Symlink(t.TempDir(), dir)) }, "symbolic link"},
		"file":          {func(t *testing.T, dir string) { check.Must(t, os.WriteFile(dir, nil, 0o600)) }, "not a directory"},
		"other user": {func(t *testing.T, dir string) {
			check.Root(t)
			check.Must(t, os.Mkdir(dir, 0o700))
			check.Must(t, os.Chown(dir, 12345, -1))
		}, "owned by user 12345"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			c.plant(t, dir)
			_, openErr := Open(dir)
			_, lockErr := Lock(t.Context(), dir, Holder{}, nil)
			for what, err := range map[string]error{"Check": Check(dir), "Open": openErr, "Lock": lockErr} {
				check.Error(t, err, dir, c.want)
				check.Equal(t, "number of paths of "+what+" in "+err.Error(), strings.Count(err.Error(), dir), 1)
			}
		})
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 256))
	_, err := Lock(t.Context(), long, Holder{}, nil)
	check.Equal(t, "error", fmt.Sprint(err), "state directory "+long+": mkdir: file name too long; configure another directory (--state-dir)")
	_, err = Lock(t.Context(), "", Holder{}, nil)
	check.Error(t, err, "empty path")
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	file, none := filepath.Join(dir, "file"), filepath.Join(dir, "none")
	check.Must(t, os.WriteFile(file, nil, 0o600))
	check.NoError(t, Check(dir))
	check.NoError(t, Check(none))
	check.Absent(t, none)
	check.Error(t, Check(filepath.Join(file, "x")), "not a directory")
}

func TestAvailable(t *testing.T) {
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
		"no such file in it":          {"data", nothing, "data: no such file or directory"},
		"directory in its place":      {"data", dir, "data leads to " + another},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "parent", "state")
			d := lockDir(t, path)
			check.Must(t, d.WriteFile("data", nil, 0o600))
			opened, err := d.Lstat("data")
			check.Must(t, err)
			check.Must(t, d.Available("data", opened))
			moved := filepath.Join(path, tt.path)
			check.Must(t, os.Rename(moved, moved+".away"))
			check.Must(t, tt.replace(moved))

			err = d.Available("data", opened)
			check.True(t, errors.Is(err, ErrReplaced), "got %v; want ErrReplaced", err)
			check.Error(t, err, tt.want, path, fileID(d.info))

			check.Must(t, os.RemoveAll(moved))
			check.Must(t, os.Rename(moved+".away", moved))
			check.Must(t, d.Available("data", opened))
			check.Must(t, d.Close())
		})
	}
}

// It may be the right directory, so the error is not ErrReplaced.
func TestAvailableUnknown(t *testing.T) {
	parent := t.TempDir()
	d := lockDir(t, filepath.Join(parent, "state"))
	defer d.Close()
	check.Must(t, os.Chmod(parent, 0))
	t.Cleanup(func() { check.Must(t, os.Chmod(parent, 0o700)) })
	var err error
	check.WithoutPrivileges(t, func() { err = d.Available("", nil) })
	if !errors.Is(err, syscall.EACCES) || errors.Is(err, ErrReplaced) {
		t.Errorf("got %v; want %v and not ErrReplaced", err, syscall.EACCES)
	}
}

// An fsync leaves no trace that a test could see without a power loss, but procfs refuses it.
func TestSync(t *testing.T) {
	root, err := os.OpenRoot("/proc/self")
	check.Must(t, err)
	d := &Dir{Root: root}
	defer d.Close()
	err = d.Sync(".")
	check.True(t, errors.Is(err, syscall.EINVAL), "a directory that cannot be synced: %v", err)
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
