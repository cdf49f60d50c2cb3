package options

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The layout is that of Kubernetes (pkg/volume/util, AtomicWriter): the files are links into
// ..data, which is a link to the version in use.
//
//evidence:operate/security F8
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := filepath.Join(dir, "..2026_03_01_12_00_00.1")
	for _, err := range []error{
		os.Mkdir(version, 0o755),
		os.WriteFile(filepath.Join(version, "owners"), []byte("router\n"), 0o644),
		os.Symlink(filepath.Base(version), filepath.Join(dir, "..data")),
		os.Symlink(filepath.Join("..data", "owners"), filepath.Join(dir, "owners")),
		os.WriteFile(filepath.Join(dir, ".hidden"), nil, 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, _, err := resolve(t, nil, nil, "--config-dir="+dir)
	if want := []string{"router"}; err != nil || !slices.Equal(s.Owners, want) {
		t.Errorf("owners are %q, %v; want %q", s.Owners, err, want)
	}
}

func TestUnreadableConfigDir(t *testing.T) {
	_, set, err := resolve(t, nil, nil, "--config-dir="+filepath.Join(t.TempDir(), "none"))
	wantWords(t, err, "--config-dir", "none", "expected a readable directory")
	if from := set.Setting("owners").Source; from != "" {
		t.Errorf("--owners is from %q; want no source after an error", from)
	}
}

//evidence:operate/security F7
func TestUnreadableConfigFile(t *testing.T) {
	for name, tt := range map[string]struct {
		create func(path string) error
		want   string
	}{
		"directory":    {func(path string) error { return os.Mkdir(path, 0o755) }, "not a regular file"},
		"FIFO":         {func(path string) error { return unix.Mkfifo(path, 0o600) }, "not a regular file"},
		"too large":    {func(path string) error { return os.WriteFile(path, make([]byte, 64<<10+1), 0o600) }, "larger than 65536 bytes"},
		"sparse 5 GiB": {func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 5<<30)) }, "larger than 65536 bytes"},
		"dangling":     {func(path string) error { return os.Symlink("nowhere", path) }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "owners")
			if err := tt.create(path); err != nil {
				t.Fatal(err)
			}
			_, _, err := resolve(t, nil, nil, "--config-dir="+filepath.Dir(path))
			wantWords(t, err, path, tt.want)
		})
	}
}

func TestLargestConfigFile(t *testing.T) {
	value := strings.Repeat("x", 64<<10)
	s, _, err := resolve(t, nil, map[string]string{"owners": value})
	if err != nil || !slices.Equal(s.Owners, []string{value}) {
		t.Errorf("got %d owners, %v; want the one of the file", len(s.Owners), err)
	}
}

//evidence:operate/security F8
func TestSkippedConfigFiles(t *testing.T) {
	files := map[string]string{"owners": "router", ".hidden": "x"}
	var want []string
	for _, name := range []string{"owners~", "owners.bak", "owners.orig", ".owners.swp", ".owners.swo", "#owners#", ".#owners", "owners.tmp", "owners.rpmsave", "owners.dpkg-old"} {
		files[name] = "all"
		want = append(want, name)
	}
	dir := writeDir(t, files)
	want = append(want, "lost+found", "more")
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "lost+found"), 0o755),
		os.Symlink("lost+found", filepath.Join(dir, "more")),
		os.Mkdir(filepath.Join(dir, "..2026_03_01_12_00_00.1"), 0o755),
		os.Symlink("..2026_03_01_12_00_00.1", filepath.Join(dir, "..data")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, set, err := resolve(t, nil, nil, "--config-dir="+dir)
	if err != nil || !slices.Equal(s.Owners, []string{"router"}) {
		t.Errorf("owners are %q, %v; want those of the file", s.Owners, err)
	}
	for i := range want {
		want[i] = filepath.Join(dir, want[i])
	}
	slices.Sort(want)
	if got := set.SkippedFiles(); !slices.Equal(got, want) {
		t.Errorf("skipped are %q; want %q", got, want)
	}
}
