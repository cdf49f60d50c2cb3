package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

const limit = 1 << 10

func TestRead(t *testing.T) {
	dir := t.TempDir()
	largest := strings.Repeat("x", limit)
	path := filepath.Join(dir, "file")
	check.Must(t, os.WriteFile(path, []byte(largest), 0o600))
	link := filepath.Join(dir, "link")
	check.Must(t, os.Symlink(path, link))
	for _, name := range []string{path, link} {
		if got, err := Read(name, limit); err != nil || string(got) != largest {
			t.Errorf("%s: got %d bytes, %v; want %d", name, len(got), err, limit)
		}
	}
}

//evidence:operate/security a FIFO, device, or 5 GiB as option, profile or CNI configuration
func TestReadRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		create func(path string) error
		want   string
	}{
		"missing":   {func(string) error { return nil }, "no such file"},
		"dangling":  {func(path string) error { return os.Symlink("nowhere", path) }, "no such file"},
		"directory": {func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file (d---------)"},
		"FIFO":      {func(path string) error { return unix.Mkfifo(path, 0o600) }, "not a regular file (p---------)"},
		"link to FIFO": {func(path string) error {
			return errors.Join(unix.Mkfifo(path+".1", 0o600), os.Symlink(path+".1", path))
		}, "not a regular file"},
		"device":       {func(path string) error { return os.Symlink("/dev/zero", path) }, "not a regular file"},
		"too large":    {func(path string) error { return os.WriteFile(path, make([]byte, limit+1), 0o600) }, "larger than 1024 bytes"},
		"sparse 5 GiB": {func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 5<<30)) }, "larger than 1024 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			check.Must(t, tt.create(path))
			data, err := Read(path, limit)
			if err == nil || data != nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %d bytes, error %v; want %q", len(data), err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), path) {
				t.Errorf("error %q contains the path", err)
			}
		})
	}
}

// A link is followed neither to a file inside of the root nor outside of it.
func TestReadIn(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	check.Must(t, err)
	defer root.Close()
	at := func(name string) string { return filepath.Join(dir, name) }
	check.Must(t, os.WriteFile(at("file"), []byte("text"), 0o600))
	check.Must(t, os.Symlink("file", at("link")))
	check.Must(t, unix.Mkfifo(at("FIFO"), 0o600))
	check.Must(t, os.WriteFile(at("large"), make([]byte, limit+1), 0o600))
	if got, err := ReadIn(root, "file", limit); err != nil || string(got) != "text" {
		t.Errorf("got %q, %v", got, err)
	}
	for name, want := range map[string]string{
		"link": "not a regular file (L---------)", "FIFO": "not a regular file (p---------)", "large": "larger than 1024 bytes",
	} {
		_, err := ReadIn(root, name, limit)
		if _, ok := errors.AsType[UnfitError](err); !ok || err.Error() != want {
			t.Errorf("%s: got %v; want %s", name, err, want)
		}
	}
	_, err = ReadIn(root, "missing", limit)
	if at, ok := errors.AsType[*fs.PathError](err); !ok || at.Path != filepath.Join(dir, "missing") || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v; want an error with the full path", err)
	}
}
