package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAStateFolderKeepsItsMarker(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	first := open(t, dir)
	if second := open(t, dir); second.marker.id != first.marker.id || second.marker.identity != first.marker.identity {
		t.Errorf("the marker was %+v and is %+v", first.marker, second.marker)
	}
	if id := open(t, other).marker.id; id == first.marker.id || len(id) != 16 {
		t.Errorf("another folder has the marker %q beside %q; want 16 other digits", id, first.marker.id)
	}
	info, err := os.Lstat(filepath.Join(dir, markerName))
	must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("the marker has mode %s", info.Mode())
	}
}

func TestAStartWithoutAUsableMarkerWritesOneAndKeepsTheRecords(t *testing.T) {
	plant := func(content string) func(t *testing.T, path, _ string) {
		return func(t *testing.T, path, _ string) { must(t, os.WriteFile(path, []byte(content), 0o600)) }
	}
	for name, put := range map[string]func(t *testing.T, path, precious string){
		"a folder of an earlier build": func(*testing.T, string, string) {},
		"an empty marker":              plant(""),
		"a marker that is cut off":     plant("0123"),
		"a marker in upper case":       plant("0123456789ABCDEF\n"),
		"a marker that is too long":    plant("0123456789abcdef\n0"),
		"a symbolic link": func(t *testing.T, path, precious string) {
			must(t, os.Symlink(precious, path))
		},
		"a marker half written": func(t *testing.T, path, _ string) {
			must(t, os.WriteFile(filepath.Join(filepath.Dir(path), ".marker.new"), []byte("01"), 0o600))
		},
		"a link for a marker half written": func(t *testing.T, path, precious string) {
			must(t, os.Symlink(precious, filepath.Join(filepath.Dir(path), ".marker.new")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			before := open(t, dir)
			write(t, before, sample("a"))
			precious := filepath.Join(t.TempDir(), "precious")
			const text = "0123456789abcdef\n" // as if it were one
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
			if got := names(t, dir); strings.Join(got, " ") != "attachments marker quarantine" {
				t.Errorf("the state folder has %q", got)
			}
			if got, err := os.ReadFile(precious); err != nil || string(got) != text {
				t.Errorf("the file that the link leads to has %q, %v; want it not to be touched", got, err)
			}
		})
	}
}

func TestAFolderForAMarkerIsRefused(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, markerName, "full"), 0o700))
	if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, markerName)) {
		t.Errorf("got %v; want an error that names the marker", err)
	}
}
