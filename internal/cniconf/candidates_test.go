package cniconf

import (
	"os"
	"path/filepath"
	"testing"
)

// configMap makes a directory as the kubelet does for a ConfigMap volume with one key, which may
// be a path, as "items" allows.
func configMap(t *testing.T, key, content string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	const present = "..2026_11_22_15_04_05.0123456789"
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, present, filepath.Dir(key)), 0o755),
		os.WriteFile(filepath.Join(dir, present, key), []byte(content), 0o644),
		os.Symlink(present, filepath.Join(dir, dataLink)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	first := key
	for filepath.Dir(first) != "." {
		first = filepath.Dir(first)
	}
	if err := os.Symlink(filepath.Join(dataLink, first), filepath.Join(dir, first)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestInConfigMap(t *testing.T) {
	plain := t.TempDir()
	put(t, plain, "a.conflist", list("a"))
	dotted := t.TempDir()
	if err := os.Mkdir(filepath.Join(dotted, "..old"), 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dotted, "..old"), "a.conflist", list("a"))
	linked := filepath.Join(t.TempDir(), "z.conflist")
	if err := os.Symlink(filepath.Join(configMap(t, "a.conflist", list("a")), "a.conflist"), linked); err != nil {
		t.Fatal(err)
	}
	// The kubelet replaces the link after the file was resolved.
	replaced := configMap(t, "a.conflist", list("a"))
	previous, err := os.Readlink(filepath.Join(replaced, dataLink))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Remove(filepath.Join(replaced, dataLink)),
		os.Symlink("..2026_11_22_15_05_05.0123456789", filepath.Join(replaced, dataLink)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		file string
		want bool
	}{
		"replaced meanwhile":        {filepath.Join(replaced, previous, "a.conflist"), true},
		"a volume":                  {filepath.Join(configMap(t, "a.conflist", list("a")), "a.conflist"), true},
		"a path of items":           {filepath.Join(configMap(t, "x/y/a.conflist", list("a")), "x/y/a.conflist"), true},
		"a link to it":              {linked, true},
		"the content itself":        {filepath.Join(configMap(t, "a.conflist", list("a")), dataLink, "a.conflist"), true},
		"a file of the node":        {filepath.Join(plain, "a.conflist"), false},
		"a directory with two dots": {filepath.Join(dotted, "..old", "a.conflist"), false},
		"no file":                   {filepath.Join(plain, "none"), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := inConfigMap(tt.file); got != tt.want {
				t.Errorf("got %t; want %t", got, tt.want)
			}
			c := readCandidate(tt.file)
			if c.err == nil && c.network.Shared != tt.want {
				t.Errorf("the network is shared: %t; want %t", c.network.Shared, tt.want)
			}
		})
	}
}
