package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "parent", "state")
	if err := os.MkdirAll(filepath.Join(dir, quarantineName), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, open(t, dir), sample("a"))
	for path, want := range map[string]os.FileMode{
		dir:                                 os.ModeDir | 0o700,
		filepath.Join(dir, attachmentsName): os.ModeDir | 0o700,
		filepath.Join(dir, quarantineName):  os.ModeDir | 0o700,
		attachmentFile(dir, "a.json"):       0o600,
	} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %s, want %s", path, info.Mode(), want)
		}
	}
}

func TestOpenRefused(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(t *testing.T, dir string)
		want  string
	}{
		"symbolic link": {
			func(t *testing.T, dir string) { must(t, os.Symlink(t.TempDir(), dir)) },
			"symbolic link",
		},
		"file": {
			func(t *testing.T, dir string) { must(t, os.WriteFile(dir, nil, 0o600)) },
			"not a directory",
		},
		"attachments is a symbolic link": {
			func(t *testing.T, dir string) {
				must(t, os.Mkdir(dir, 0o700))
				must(t, os.Symlink(t.TempDir(), filepath.Join(dir, attachmentsName)))
			},
			"symbolic link",
		},
		"quarantine is a file": {
			func(t *testing.T, dir string) {
				must(t, os.Mkdir(dir, 0o700))
				must(t, os.WriteFile(filepath.Join(dir, quarantineName), nil, 0o600))
			},
			"not a directory",
		},
		"other user": {
			func(t *testing.T, dir string) {
				if os.Geteuid() != 0 {
					t.Skip("chown needs root")
				}
				must(t, os.Mkdir(dir, 0o700))
				must(t, os.Chown(dir, 12345, -1))
			},
			"owned by user 12345",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			c.plant(t, dir)
			j, err := Open(dir, Options{})
			if err == nil {
				_ = j.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), dir) != 1 {
				t.Errorf("error %q; want %q, and %s once", err, c.want, dir)
			}
		})
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 256))
	if _, err := Open(long, Options{}); err == nil || err.Error() != "state directory "+long+": mkdir: file name too long; configure another directory (--state-dir)" {
		t.Errorf("got %v; want the path and the reason, once each", err)
	}
	if _, err := Open("", Options{}); err == nil {
		t.Error("an empty path was opened")
	}
}

func TestCheckDir(t *testing.T) {
	dir := t.TempDir()
	file, link, none := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "none")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "", none: "", file: "not a directory", link: "symbolic link", filepath.Join(file, "x"): "not a directory"} {
		err := CheckDir(path)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want %q", path, err, want)
		}
	}
	if _, err := os.Lstat(none); !os.IsNotExist(err) {
		t.Errorf("%s: %v; want it not created", none, err)
	}
}

// treeOf returns every path below a directory, sorted.
func treeOf(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
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
	away := func(t *testing.T, path string) { t.Helper(); must(t, os.Rename(path, path+".away")) }
	tests := map[string]struct {
		path    string // is moved away
		replace func(t *testing.T, path string)
		want    string // in the error
	}{
		"no state directory":          {".", func(*testing.T, string) {}, "no such file or directory"},
		"other state directory":       {".", func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "another directory or file system"},
		"copy of the state directory": {".", func(t *testing.T, path string) { must(t, os.CopyFS(path, os.DirFS(path+".away"))) }, "another directory or file system"},
		"file":                        {".", func(t *testing.T, path string) { must(t, os.WriteFile(path, nil, 0o600)) }, "another file"},
		"link to the state directory": {".", func(t *testing.T, path string) { must(t, os.Symlink(path+".away", path)) }, "a symbolic link"},
		"no parent":                   {"..", func(*testing.T, string) {}, "no such file or directory"},
		"parent is a file":            {"..", func(t *testing.T, path string) { must(t, os.WriteFile(path, nil, 0o600)) }, "not a directory"},
		"no attachments":              {attachmentsName, func(*testing.T, string) {}, "attachments: no such file or directory"},
		"other attachments":           {attachmentsName, func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "attachments leads to another directory or file system"},
		"link to the attachments":     {attachmentsName, func(t *testing.T, path string) { must(t, os.Symlink(path+".away", path)) }, "attachments leads to a symbolic link"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "parent", "state")
			j := open(t, dir)
			write(t, j, sample("a"))
			path := filepath.Join(dir, tt.path)
			away(t, path)
			tt.replace(t, path)
			before := treeOf(t, top)

			for what, err := range callAll(j) {
				if !errors.Is(err, errReplaced) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fileID(j.state.info)) {
					t.Errorf("%s: %v; want errReplaced with %q, %s and %s", what, err, tt.want, dir, fileID(j.state.info))
				}
			}
			if after := treeOf(t, top); !reflect.DeepEqual(after, before) {
				t.Errorf("before\n%q\nafter\n%q", before, after)
			}

			must(t, os.RemoveAll(path))
			must(t, os.Rename(path+".away", path))
			must(t, j.Available())
			must(t, j.Writable())
			write(t, j, sample("b"))
			if got, want := load(t, j), (Loaded{Records: []record.Record{sample("a"), sample("b")}}); !reflect.DeepEqual(got, want) {
				t.Errorf("loaded %+v; want %+v", got, want)
			}
		})
	}
}

// It may be the right directory, so the error is not errReplaced.
func TestAvailableUnknown(t *testing.T) {
	parent := t.TempDir()
	j := open(t, filepath.Join(parent, "state"))
	must(t, os.Chmod(parent, 0))
	t.Cleanup(func() { must(t, os.Chmod(parent, 0o700)) })
	var err error
	withoutPrivileges(t, func() { err = j.Available() })
	if !errors.Is(err, syscall.EACCES) || errors.Is(err, errReplaced) {
		t.Errorf("got %v; want %v and not errReplaced", err, syscall.EACCES)
	}
}

func TestReplacedDuringChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, j *Journal) error{
		"write":   func(t *testing.T, j *Journal) error { return j.replace("b", encoded(t, "b")) },
		"removal": func(_ *testing.T, j *Journal) error { return j.remove("a", false) },
		"probe":   func(_ *testing.T, j *Journal) error { return j.probe() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			j := open(t, dir)
			write(t, j, sample("a"))
			err := j.whileAvailable(func() error {
				must(t, os.Rename(dir, dir+".away"))
				must(t, os.Mkdir(dir, 0o700))
				return change(t, j)
			})
			if !errors.Is(err, errReplaced) {
				t.Errorf("got %v; want errReplaced", err)
			}
			if found := treeOf(t, dir); len(found) != 1 {
				t.Errorf("the new directory has %q; want nothing", found)
			}
		})
	}
}

func BenchmarkAvailable(b *testing.B) {
	j, err := Open(benchDir(b), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = j.Close() })
	b.ReportAllocs()
	for b.Loop() {
		if err := j.Available(); err != nil {
			b.Fatal(err)
		}
	}
}

// An fsync leaves no trace that a test could see without a power loss, but procfs refuses it.
func TestSyncDir(t *testing.T) {
	root, err := os.OpenRoot("/proc/self")
	must(t, err)
	defer root.Close()
	for name, err := range map[string]error{"syncDir": syncDir(&directory{Root: root}), "syncPath": syncPath("/proc/self")} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s of a directory that cannot be synced: %v; want EINVAL", name, err)
		}
	}
}
