package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

func TestLoadQuarantines(t *testing.T) {
	another := sample("a")
	another.MachineID = "other"
	foreign, err := (&Journal{}).encode(another)
	must(t, err)
	plant := func(name string, data []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			must(t, os.WriteFile(attachmentFile(dir, name), data, 0o600))
		}
	}
	for name, c := range map[string]struct {
		file   string
		id     string
		plant  func(t *testing.T, dir string)
		reason string
	}{
		"empty file":             {"a.json", "a", plant("a.json", nil), "empty"},
		"not JSON":               {"a.json", "a", plant("a.json", []byte("hello")), "not an envelope"},
		"version 0":              {"a.json", "a", plant("a.json", []byte(`{"version":0}`)), "version 0; expected"},
		"name of another record": {"b.json", "b", plant("b.json", encoded(t, "a")), "expected a.json"},
		"copy made by hand":      {"a (copy).json", "", plant("a (copy).json", encoded(t, "a")), "expected a.json"},
		"other file":             {"README", "", plant("README", []byte("hello")), "not an envelope"},
		"hidden file":            {".a.json.swp", "", plant(".a.json.swp", nil), "empty"},
		"other machine":          {"a.json", "a", plant("a.json", foreign), "another machine"},
		"too large":              {"a.json", "a", plant("a.json", make([]byte, maxFile+1)), "larger than"},
		"longest name":           {strings.Repeat("n", 255), "", plant(strings.Repeat("n", 255), nil), "empty"},
		"directory": {"a.json", "a", func(t *testing.T, dir string) {
			must(t, os.MkdirAll(attachmentFile(dir, "a.json/deep"), 0o700))
		}, "not a regular file"},
		"link to a record elsewhere": {"a.json", "a", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "elsewhere"), encoded(t, "a"), 0o600))
			must(t, os.Symlink("../elsewhere", attachmentFile(dir, "a.json")))
		}, "not a regular file"},
		"link to another record": {"b.json", "b", func(t *testing.T, dir string) {
			must(t, os.Symlink("neighbour.json", attachmentFile(dir, "b.json")))
		}, "not a regular file"},
		"directory named like a temporary file": {".a.json12", "", func(t *testing.T, dir string) {
			must(t, os.MkdirAll(attachmentFile(dir, ".a.json12/deep"), 0o700))
		}, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			c.plant(t, dir)
			p := loadQuarantined(t, dir, j, c.file)
			if p.ContainerID != c.id || !strings.Contains(p.Reason.Error(), c.reason) {
				t.Errorf("problem of container ID %q: %v; want of %q: …%s…", p.ContainerID, p.Reason, c.id, c.reason)
			}
		})
	}
}

func TestLoadFlippedBit(t *testing.T) {
	data := encoded(t, "a")
	at := func(text string) int {
		i := bytes.Index(data, []byte(text))
		if i < 0 {
			t.Fatalf("the file lacks %q", text)
		}
		return i
	}
	for region, offset := range map[string]int{
		"first byte":               0,
		"version key":              at(`version`),
		"checksum":                 at(`"sha256":"`) + 12,
		"first byte of the record": at(`{"containerID`),
		"container ID":             at(`"a"`) + 1,
		"address":                  at(`10.1.0.7`),
		"state":                    at(`held`),
		"last brace":               len(data) - 2,
		"line feed":                len(data) - 1,
	} {
		t.Run(region, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			flipped := bytes.Clone(data)
			flipped[offset] ^= 4
			must(t, os.WriteFile(attachmentFile(dir, "a.json"), flipped, 0o600))
			loadQuarantined(t, dir, j, "a.json")
		})
	}
}

func TestFutureVersion(t *testing.T) {
	for name, c := range map[string]struct {
		file, content string
		want          FutureVersion
	}{
		"readable owner": {
			"a.json", `{"version":3,"sum":"x","record":{"owner":"router","pool":"blue","more":1}}`,
			FutureVersion{File: "a.json", ContainerID: "a", Owner: "router", Pool: "blue", Version: 3},
		},
		"other record format": {
			"a.json", `{"version":7,"record":[1,2]}`,
			FutureVersion{File: "a.json", ContainerID: "a", Version: 7},
		},
		"other file name": {
			"a.v9", `{"version":9}`,
			FutureVersion{File: "a.v9", Version: 9},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			must(t, os.WriteFile(attachmentFile(dir, c.file), []byte(c.content), 0o600))
			_, err := decode([]byte(c.content))
			if err == nil || !strings.Contains(err.Error(), "supports versions up to 2") {
				t.Errorf("error %v", err)
			}
			if got, want := load(t, j), (Loaded{FutureVersions: []FutureVersion{c.want}}); !reflect.DeepEqual(got, want) {
				t.Errorf("loaded %+v, want %+v", got, want)
			}
			if c.want.ContainerID != "" {
				if err := j.Write(sample("a")); !errors.Is(err, errFutureVersion) {
					t.Errorf("Write: %v", err)
				}
				if err := j.Remove("a"); !errors.Is(err, errFutureVersion) {
					t.Errorf("Remove: %v", err)
				}
			}
			if got, err := os.ReadFile(attachmentFile(dir, c.file)); err != nil || string(got) != c.content {
				t.Errorf("the file is now %q, %v", got, err)
			}
		})
	}
}

func TestLoadRemovesTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	// The first is left by a process that is killed before its rename, the others by earlier
	// builds.
	for _, name := range []string{".new.json1", ".new.json12"} {
		must(t, os.WriteFile(attachmentFile(dir, name), encoded(t, "a"), 0o600))
	}
	if got := load(t, j); !reflect.DeepEqual(got, Loaded{}) {
		t.Errorf("loaded %+v", got)
	}
	if left := entryNames(t, filepath.Join(dir, attachmentsName)); len(left) != 0 {
		t.Errorf("attachments/ still has %q", left)
	}
}

func TestLoadClosed(t *testing.T) {
	j, err := Open(t.TempDir(), Options{})
	must(t, err)
	must(t, j.Close())
	if _, err := j.Load(); err == nil {
		t.Error("loaded from a closed directory")
	}
	if _, err := j.Quarantined(); err == nil {
		t.Error("listed a closed directory")
	}
}

func TestLoadUnreadable(t *testing.T) {
	tests := map[string]struct {
		// without runs f while the file cannot be read.
		without func(t *testing.T, file string, f func())
		want    error
	}{
		"file mode": {func(t *testing.T, file string, f func()) {
			must(t, os.Chmod(file, 0))
			withoutPrivileges(t, f)
			must(t, os.Chmod(file, 0o600))
		}, syscall.EACCES},
		"directory mode": {func(t *testing.T, file string, f func()) {
			dir := filepath.Dir(file)
			must(t, os.Chmod(dir, 0o400)) // only its names can be read
			withoutPrivileges(t, f)
			must(t, os.Chmod(dir, 0o700))
		}, syscall.EACCES},
		"no file descriptors": {func(t *testing.T, _ string, f func()) {
			var before syscall.Rlimit
			must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
			must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: before.Max}))
			f()
			must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
		}, syscall.EMFILE},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			write(t, j, sample("a"))
			var err error
			tt.without(t, attachmentFile(dir, "a.json"), func() { _, err = j.Load() })
			if !errors.Is(err, tt.want) || strings.Count(err.Error(), dir) != 1 {
				t.Errorf("Load: %v; want %v, and %s once", err, tt.want, dir)
			}
			if got := load(t, j); !reflect.DeepEqual(got, Loaded{Records: []record.Record{sample("a")}}) {
				t.Errorf("without the cause: loaded %+v", got)
			}
		})
	}
}

// No file system of a test returns an I/O error; test/faults has one with the real binary.
func TestUnreadableError(t *testing.T) {
	err := error(&unreadableError{&os.PathError{Op: "read", Path: "a.json", Err: syscall.EIO}})
	for _, word := range []string{"read a.json: input/output error", "start again", "quarantine/"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q lacks %q", err, word)
		}
	}
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("%v is not %v", err, syscall.EIO)
	}
}
