package cniconf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// configMap makes a directory as the kubelet does for a ConfigMap volume with one key, which may
// be a path, as "items" allows.
func configMap(t *testing.T, key, content string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	const present = "..2026_11_22_15_04_05.0123456789"
	put(t, filepath.Join(dir, present), key, content)
	check.Must(t, os.Symlink(present, filepath.Join(dir, dataLink)))
	first, _, _ := strings.Cut(key, "/")
	check.Must(t, os.Symlink(filepath.Join(dataLink, first), filepath.Join(dir, first)))
	return dir
}

func TestInConfigMap(t *testing.T) {
	plain, dotted := t.TempDir(), t.TempDir()
	put(t, plain, "a.conflist", list("a"))
	put(t, dotted, "..old/a.conflist", list("a"))
	volume := configMap(t, "a.conflist", list("a"))
	linked := filepath.Join(t.TempDir(), "z.conflist")
	check.Must(t, os.Symlink(filepath.Join(volume, "a.conflist"), linked))
	// The kubelet replaces the link after the file was resolved.
	replaced := configMap(t, "a.conflist", list("a"))
	previous, err := os.Readlink(filepath.Join(replaced, dataLink))
	check.Must(t, err)
	check.Must(t, os.Remove(filepath.Join(replaced, dataLink)))
	check.Must(t, os.Symlink("..2026_11_22_15_05_05.0123456789", filepath.Join(replaced, dataLink)))
	for name, tt := range map[string]struct {
		file string
		want bool
	}{
		"replaced meanwhile":        {filepath.Join(replaced, previous, "a.conflist"), true},
		"a volume":                  {filepath.Join(volume, "a.conflist"), true},
		"a path of items":           {filepath.Join(configMap(t, "x/y/a.conflist", list("a")), "x/y/a.conflist"), true},
		"a link to it":              {linked, true},
		"the content itself":        {filepath.Join(volume, dataLink, "a.conflist"), true},
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
