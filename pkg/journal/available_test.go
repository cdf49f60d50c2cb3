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

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// tree returns every name below a folder, sorted.
func tree(t *testing.T, dir string) []string {
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

// changes calls everything that needs the state folder, and returns the errors by name.
func changes(j *Journal) map[string]error {
	_, quarantinedErr := j.Quarantined()
	_, loadErr := j.Load()
	return map[string]error{
		"Available": j.Available(), "Write": j.Write(sample("b")), "Remove": j.Remove("a"), "Writable": j.Writable(),
		"Quarantined": quarantinedErr, "Load": loadErr,
	}
}

func TestAFolderThatIsNotTheOneThatWasOpenedIsLeftAlone(t *testing.T) {
	away := func(t *testing.T, path string) { t.Helper(); must(t, os.Rename(path, path+".away")) }
	tests := map[string]struct {
		// path is moved away, and instead puts something in its place.
		path    string
		instead func(t *testing.T, path string)
		says    string
	}{
		"no state folder":                {".", func(*testing.T, string) {}, "no such file or directory"},
		"another state folder":           {".", func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "another folder or file system"},
		"a copy of the state folder":     {".", func(t *testing.T, path string) { must(t, os.CopyFS(path, os.DirFS(path+".away"))) }, "another folder or file system"},
		"a file for the state folder":    {".", func(t *testing.T, path string) { must(t, os.WriteFile(path, nil, 0o600)) }, "another file"},
		"a link to the state folder":     {".", func(t *testing.T, path string) { must(t, os.Symlink(path+".away", path)) }, "a symbolic link"},
		"a parent that is moved away":    {"..", func(*testing.T, string) {}, "no such file or directory"},
		"a parent that is a file":        {"..", func(t *testing.T, path string) { must(t, os.WriteFile(path, nil, 0o600)) }, "not a directory"},
		"no attachments":                 {attachmentsName, func(*testing.T, string) {}, "attachments: no such file or directory"},
		"other attachments":              {attachmentsName, func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "attachments leads to another folder or file system"},
		"a link to the attachments":      {attachmentsName, func(t *testing.T, path string) { must(t, os.Symlink(path+".away", path)) }, "attachments leads to a symbolic link"},
		"no marker":                      {markerName, func(*testing.T, string) {}, "marker: no such file or directory"},
		"a marker of another folder":     {markerName, func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("0123456789abcdef\n"), 0o600)) }, "marker leads to another file"},
		"a marker that was put back":     {markerName, copyBack, "marker leads to another file"},
		"another folder with its marker": {".", withMarkerOf, "another folder or file system"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "parent", "state")
			j := open(t, dir)
			write(t, j, sample("a"))
			path := filepath.Join(dir, tt.path)
			away(t, path)
			tt.instead(t, path)
			before := tree(t, top)

			for what, err := range changes(j) {
				if !errors.Is(err, ErrReplaced) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), j.marker.id) {
					t.Errorf("%s: %v; want ErrReplaced with %q, %s and the marker %s", what, err, tt.says, dir, j.marker.id)
				}
			}
			if after := tree(t, top); !reflect.DeepEqual(after, before) {
				t.Errorf("there were\n%q\nand there are\n%q", before, after)
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

func copyBack(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path + ".away")
	must(t, err)
	must(t, os.WriteFile(path, data, 0o600))
}

// withMarkerOf makes another state folder that shares the file of the marker.
func withMarkerOf(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(path, attachmentsName), 0o700))
	must(t, os.Link(filepath.Join(path+".away", markerName), filepath.Join(path, markerName)))
}

// It may be the right folder: the error must not say that it is another one.
func TestAFolderThatCannotBeExaminedIsUnavailableAndNotReplaced(t *testing.T) {
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

func TestAChangeOfAFolderThatIsReplacedMeanwhileIsNotAcknowledged(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, j *Journal) error{
		"a write":   func(t *testing.T, j *Journal) error { return j.replace("b", good(t, "b")) },
		"a removal": func(_ *testing.T, j *Journal) error { return j.remove("a") },
		"a probe":   func(_ *testing.T, j *Journal) error { return j.probe() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			j := open(t, dir)
			write(t, j, sample("a"))
			err := j.guarded(func() error {
				must(t, os.Rename(dir, dir+".away"))
				must(t, os.Mkdir(dir, 0o700))
				return change(t, j)
			})
			if !errors.Is(err, ErrReplaced) {
				t.Errorf("got %v; want ErrReplaced", err)
			}
			if found := tree(t, dir); len(found) != 1 {
				t.Errorf("the folder that took the place has %q; want nothing in it", found)
			}
		})
	}
}

func TestTheFilesInQuarantineAreThoseOfTheFolderThatWasOpened(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	quarantine := filepath.Join(dir, quarantineName)
	must(t, os.WriteFile(filepath.Join(quarantine, "ours"), nil, 0o600))
	must(t, os.Rename(quarantine, quarantine+".away"))
	must(t, os.Mkdir(quarantine, 0o700))
	must(t, os.WriteFile(filepath.Join(quarantine, "foreign"), nil, 0o600))
	if got, err := j.Quarantined(); err != nil || len(got) != 1 || got[0].Name != "ours" {
		t.Errorf("it lists %+v, %v; want the file of the folder that was opened", got, err)
	}
	must(t, os.RemoveAll(quarantine+".away"))
	if got, err := j.Quarantined(); err != nil || len(got) != 0 {
		t.Errorf("of a folder that was removed it lists %+v, %v; want nothing", got, err)
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
