package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestLoadQuarantines(t *testing.T) {
	another := sample("a")
	another.MachineID = "other"
	foreign := fileOf(t, another)
	flipped := bytes.Replace(encoded(t, "a"), []byte("10.1.0.7"), []byte("10.1.0.5"), 1)
	plant := func(name string, data []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			check.Must(t, os.WriteFile(attachmentFile(dir, name), data, 0o600))
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
		"flipped bit":            {"a.json", "a", plant("a.json", flipped), "damaged"},
		"too large":              {"a.json", "a", plant("a.json", make([]byte, maxFile+1)), "larger than"},
		"longest name":           {strings.Repeat("n", 255), "", plant(strings.Repeat("n", 255), nil), "empty"},
		"directory": {"a.json", "a", func(t *testing.T, dir string) {
			check.Must(t, os.MkdirAll(attachmentFile(dir, "a.json/deep"), 0o700))
		}, "not a regular file"},
		"link to a record elsewhere": {"a.json", "a", func(t *testing.T, dir string) {
			check.Must(t, os.WriteFile(filepath.Join(dir, "elsewhere"), encoded(t, "a"), 0o600))
			check.Must(t, os.Symlink("../elsewhere", attachmentFile(dir, "a.json")))
		}, "not a regular file"},
		"link to another record": {"b.json", "b", func(t *testing.T, dir string) {
			check.Must(t, os.Symlink("neighbour.json", attachmentFile(dir, "b.json")))
		}, "not a regular file"},
		"directory named like a temporary file": {".a.json12", "", func(t *testing.T, dir string) {
			check.Must(t, os.MkdirAll(attachmentFile(dir, ".a.json12/deep"), 0o700))
		}, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			c.plant(t, dir)
			p := loadQuarantined(t, dir, j, c.file)
			check.Equal(t, "container ID", p.ContainerID, c.id)
			check.Error(t, p.Reason, c.reason)
		})
	}
}

func TestFutureVersion(t *testing.T) {
	for name, c := range map[string]struct {
		file, content string
		want          FutureVersion
	}{
		"readable owner": {
			"a.json", `{"version":4,"sum":"x","record":{"owner":"router","pool":"blue","more":1}}`,
			FutureVersion{File: "a.json", ContainerID: "a", Owner: "router", Pool: "blue", Version: 4},
		},
		"other record format": {
			"a.json", `{"version":7,"record":[1,2]}`,
			FutureVersion{File: "a.json", ContainerID: "a", Version: 7},
		},
		"other file name": {"a.v9", `{"version":9}`, FutureVersion{File: "a.v9", Version: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			check.Must(t, os.WriteFile(attachmentFile(dir, c.file), []byte(c.content), 0o600))
			_, err := decode([]byte(c.content), "")
			check.Error(t, err, "supports versions up to 3")
			check.Equal(t, "loaded", load(t, j), Loaded{FutureVersions: []FutureVersion{c.want}})
			if c.want.ContainerID != "" {
				for what, err := range map[string]error{"Write": j.Write(sample("a")), "Remove": j.Remove("a")} {
					check.True(t, errors.Is(err, errFutureVersion), "%s: %v", what, err)
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
	for _, name := range []string{".new.json1", ".new.json12"} {
		check.Must(t, os.WriteFile(attachmentFile(dir, name), encoded(t, "a"), 0o600))
	}
	check.Equal(t, "loaded", load(t, j), Loaded{})
	check.Equal(t, "attachments/", check.Names(t, attachmentFile(dir, "")), "")
}

func TestLoadClosed(t *testing.T) {
	j, err := Open(t.TempDir(), Options{})
	check.Must(t, err)
	check.Must(t, j.Close())
	_, err = j.Load()
	check.Error(t, err)
	_, err = j.Quarantined()
	check.Error(t, err)
}

func TestLoadUnreadable(t *testing.T) {
	for name, tt := range map[string]struct {
		// without runs f while the file cannot be read.
		without func(t *testing.T, file string, f func())
		want    error
	}{
		"file mode": {func(t *testing.T, file string, f func()) {
			check.Must(t, os.Chmod(file, 0))
			withoutPrivileges(t, f)
			check.Must(t, os.Chmod(file, 0o600))
		}, syscall.EACCES},
		"directory mode": {func(t *testing.T, file string, f func()) {
			dir := filepath.Dir(file)
			check.Must(t, os.Chmod(dir, 0o400)) // only its names can be read
			withoutPrivileges(t, f)
			check.Must(t, os.Chmod(dir, 0o700))
		}, syscall.EACCES},
		"no file descriptors": {func(t *testing.T, _ string, f func()) {
			var before syscall.Rlimit
			check.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
			check.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: before.Max}))
			f()
			check.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
		}, syscall.EMFILE},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			write(t, j, sample("a"))
			var err error
			tt.without(t, attachmentFile(dir, "a.json"), func() { _, err = j.Load() })
			if !errors.Is(err, tt.want) || strings.Count(err.Error(), dir) != 1 {
				t.Errorf("Load: %v; want %v, and %s once", err, tt.want, dir)
			}
			if name == "file mode" { // it may be a valid record
				check.Error(t, err, "start again", "quarantine/")
			}
			check.Equal(t, "loaded without the cause", load(t, j), Loaded{Records: []record.Record{sample("a")}})
		})
	}
}
