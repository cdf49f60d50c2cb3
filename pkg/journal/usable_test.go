package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUsableRefusesWhatOpenWouldAndMakesNothing(t *testing.T) {
	dir := t.TempDir()
	file, link, none := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "none")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "", none: "", file: "no folder", link: "symbolic link", filepath.Join(file, "x"): "not a directory"} {
		err := CheckDir(path)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want %q", path, err, want)
		}
	}
	if _, err := os.Lstat(none); !os.IsNotExist(err) {
		t.Errorf("%s: %v; want nothing to have been made", none, err)
	}
}
