package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMarkerKept(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	first := open(t, dir)
	if second := open(t, dir); second.marker.id != first.marker.id || second.marker.fileID != first.marker.fileID {
		t.Errorf("the marker was %+v and is %+v", first.marker, second.marker)
	}
	if id := open(t, other).marker.id; id == first.marker.id || len(id) != 16 {
		t.Errorf("another directory has the marker %q, this one %q; want 16 different digits", id, first.marker.id)
	}
	info, err := os.Lstat(filepath.Join(dir, markerName))
	must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("the marker has mode %s", info.Mode())
	}
}

func TestMarkerReplaced(t *testing.T) {
	content := func(text string) func(t *testing.T, path, _ string) {
		return func(t *testing.T, path, _ string) { must(t, os.WriteFile(path, []byte(text), 0o600)) }
	}
	for name, put := range map[string]func(t *testing.T, path, precious string){
		"missing":    func(*testing.T, string, string) {},
		"empty":      content(""),
		"too short":  content("0123"),
		"upper case": content("0123456789ABCDEF\n"),
		"too long":   content("0123456789abcdef\n0"),
		"symbolic link": func(t *testing.T, path, precious string) {
			must(t, os.Symlink(precious, path))
		},
		"interrupted write": func(t *testing.T, path, _ string) {
			must(t, os.WriteFile(filepath.Join(filepath.Dir(path), ".marker.new"), []byte("01"), 0o600))
		},
		"link for the temporary file": func(t *testing.T, path, precious string) {
			must(t, os.Symlink(precious, filepath.Join(filepath.Dir(path), ".marker.new")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			before := open(t, dir)
			write(t, before, sample("a"))
			precious := filepath.Join(t.TempDir(), "precious")
			const text = "0123456789abcdef\n" // a valid marker
			must(t, os.WriteFile(precious, []byte(text), 0o600))
			path := filepath.Join(dir, markerName)
			must(t, os.Remove(path))
			put(t, path, precious)

			j := open(t, dir)
			if j.marker.id == before.marker.id || j.marker.id == strings.TrimSpace(text) {
				t.Errorf("the marker is %s; want a new one", j.marker.id)
			}
			must(t, j.Available())
			if got := load(t, j); len(got.Records) != 1 || len(got.Problems) != 0 {
				t.Errorf("loaded %+v; want the record", got)
			}
			if got := entryNames(t, dir); strings.Join(got, " ") != "attachments marker quarantine" {
				t.Errorf("the state directory has %q", got)
			}
			if got, err := os.ReadFile(precious); err != nil || string(got) != text {
				t.Errorf("the target of the link has %q, %v; want it unchanged", got, err)
			}
		})
	}
}

func TestMarkerIsDir(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, markerName, "full"), 0o700))
	if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, markerName)) {
		t.Errorf("got %v; want an error that names the marker", err)
	}
}
