package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

//evidence:operate/security F5
//evidence:design/state-directory modes of files and directories
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

//evidence:operate/security F3
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
