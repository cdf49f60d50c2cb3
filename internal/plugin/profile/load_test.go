package profile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.json")
	load := Loader([]string{file})
	for _, step := range []struct {
		value    string
		outlives int
		err      string
	}{
		{`7`, 7, ""},
		{`"7"`, 0, "addOutlivesSeconds"},
		{`8`, 8, ""},
	} {
		if err := os.WriteFile(file, valid(t, "addOutlivesSeconds", step.value), 0o600); err != nil {
			t.Fatal(err)
		}
		set, err := load()
		if step.err != "" {
			wantError(t, err, "--plugin-profile", file, step.err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := set.For("mine").AddOutlivesSeconds; got != step.outlives {
			t.Errorf("addOutlivesSeconds is %d; want %d", got, step.outlives)
		}
		if got := set.For("host-local").Type; got != "host-local" {
			t.Errorf("the embedded profile of host-local is %q", got)
		}
	}
}

// A file replaces the profile of its type, a later file an earlier one.
func TestLoaderReplaces(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for name, data := range map[string][]byte{
		"a": valid(t, "type", `"host-local"`, "addOutlivesSeconds", `1`),
		"b": valid(t),
		"c": valid(t, "type", `"host-local"`, "addOutlivesSeconds", `2`),
	} {
		names = append(names, filepath.Join(dir, name))
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	set, err := Loader(names)()
	if err != nil {
		t.Fatal(err)
	}
	if got := set.For("host-local").AddOutlivesSeconds; got != 2 {
		t.Errorf("addOutlivesSeconds is %d, want the 2 of the last file", got)
	}
	if got := set.For("mine").Type; got != "mine" {
		t.Errorf("got the profile %q, want the given one", got)
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	fifo, large := filepath.Join(dir, "fifo"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ file, want string }{
		"missing":   {filepath.Join(dir, "none"), "no such file"},
		"directory": {dir, "not a regular file"},
		"FIFO":      {fifo, "not a regular file"},
		"too large": {large, "larger than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Loader([]string{tt.file})()
			wantError(t, err, "--plugin-profile", tt.file, tt.want)
		})
	}
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range words {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not contain %q", err, want)
		}
	}
}
