package harness

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Snapshot maps the paths of files and folders to their mode and a hash of their content.
type Snapshot map[string]string

// Snapshot reads the plugin's store and the journal.
func (n *Node) Snapshot(t testing.TB) Snapshot {
	t.Helper()
	s := Snapshot{}
	for _, root := range []string{n.StoreDir, n.StateDir} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			s[path], err = describe(path, d)
			return err
		})
		Must(t, err)
	}
	return s
}

// WantSame fails the test for each path that differs.
func (s Snapshot) WantSame(t testing.TB, now Snapshot) {
	t.Helper()
	all := maps.Clone(s)
	maps.Copy(all, now)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if s[path] != now[path] {
			t.Errorf("%s changed from %q to %q", path, s[path], now[path])
		}
	}
}

func describe(path string, d fs.DirEntry) (string, error) {
	info, err := d.Info()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return info.Mode().String(), nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d bytes %x", info.Mode(), len(data), sha256.Sum256(data)), nil
}
