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

// Snapshot is every file and folder under some roots: path, mode and content.
type Snapshot map[string]string

// Snapshot reads the plugin's store and the journal, byte for byte.
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
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Same fails the test with each path that differs.
func (s Snapshot) Same(t testing.TB, now Snapshot) {
	t.Helper()
	all := maps.Clone(s)
	maps.Copy(all, now)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if s[path] != now[path] {
			t.Errorf("%s was changed: before %q, now %q", path, s[path], now[path])
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
