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

//evidence:design/state-directory a directory that is moved, replaced, mounted over or unmounted
func TestReplaced(t *testing.T) {
	away := func(t *testing.T, path string) { t.Helper(); must(t, os.Rename(path, path+".away")) }
	tests := map[string]struct {
		path    string // is moved away
		replace func(t *testing.T, path string)
		want    string // in the error
	}{
		"no state directory":              {".", func(*testing.T, string) {}, "no such file or directory"},
		"other state directory":           {".", func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "another directory or file system"},
		"copy of the state directory":     {".", func(t *testing.T, path string) { must(t, os.CopyFS(path, os.DirFS(path+".away"))) }, "another directory or file system"},
		"file":                            {".", func(t *testing.T, path string) { must(t, os.WriteFile(path, nil, 0o600)) }, "another file"},
		"link to the state directory":     {".", func(t *testing.T, path string) { must(t, os.Symlink(path+".away", path)) }, "a symbolic link"},
		"no parent":                       {"..", func(*testing.T, string) {}, "no such file or directory"},
		"parent is a file":                {"..", func(t *testing.T, path string) { must(t, os.WriteFile(path, nil, 0o600)) }, "not a directory"},
		"no attachments":                  {attachmentsName, func(*testing.T, string) {}, "attachments: no such file or directory"},
		"other attachments":               {attachmentsName, func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "attachments leads to another directory or file system"},
		"link to the attachments":         {attachmentsName, func(t *testing.T, path string) { must(t, os.Symlink(path+".away", path)) }, "attachments leads to a symbolic link"},
		"no marker":                       {markerName, func(*testing.T, string) {}, "marker: no such file or directory"},
		"marker of another directory":     {markerName, func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("0123456789abcdef\n"), 0o600)) }, "marker leads to another file"},
		"copied marker":                   {markerName, restoreCopy, "marker leads to another file"},
		"other directory with the marker": {".", shareMarker, "another directory or file system"},
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
				if !errors.Is(err, ErrReplaced) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), j.marker.id) {
					t.Errorf("%s: %v; want ErrReplaced with %q, %s and the marker %s", what, err, tt.want, dir, j.marker.id)
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

func restoreCopy(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path + ".away")
	must(t, err)
	must(t, os.WriteFile(path, data, 0o600))
}

// shareMarker creates another state directory with a hard link to the marker.
func shareMarker(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(path, attachmentsName), 0o700))
	must(t, os.Link(filepath.Join(path+".away", markerName), filepath.Join(path, markerName)))
}

// It may be the right directory, so the error is not ErrReplaced.
func TestAvailableUnknown(t *testing.T) {
	parent := t.TempDir()
	j := open(t, filepath.Join(parent, "state"))
	must(t, os.Chmod(parent, 0))
	t.Cleanup(func() { must(t, os.Chmod(parent, 0o700)) })
	var err error
	withoutPrivileges(t, func() { err = j.Available() })
	if !errors.Is(err, syscall.EACCES) || errors.Is(err, ErrReplaced) {
		t.Errorf("got %v; want %v and not ErrReplaced", err, syscall.EACCES)
	}
}

//evidence:design/state-directory a directory that is moved, replaced, mounted over or unmounted
func TestReplacedDuringChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, j *Journal) error{
		"write":   func(t *testing.T, j *Journal) error { return j.replace("b", encoded(t, "b")) },
		"removal": func(_ *testing.T, j *Journal) error { return j.remove("a") },
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
			if !errors.Is(err, ErrReplaced) {
				t.Errorf("got %v; want ErrReplaced", err)
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
