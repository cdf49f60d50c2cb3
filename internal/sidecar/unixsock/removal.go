package unixsock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// Remove removes the stale socket at a path and the staging directories of its sidecar, and returns
// the removed paths. It succeeds if neither exists. A socket on which a process listens, a file that
// is not a socket, and a socket of another user stay, and are an error. Links are followed only in
// the directory of the path.
func Remove(path string) (removed []string, err error) {
	dir, err := os.OpenFile(filepath.Dir(path), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	defer dir.Close()
	target := location{dir, filepath.Base(path)}
	found, err := target.removeStale()
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if found {
		removed = append(removed, path)
	}
	entries, err := entriesOf(dir)
	if err != nil {
		return removed, fmt.Errorf("socket %s: %w", path, err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), stagingPrefix(target.name)) {
			continue
		}
		removeStaging(dir, e.Name())
		left := filepath.Join(filepath.Dir(path), e.Name())
		if f, openErr := openName(dir, e.Name()); openErr == nil {
			err = errors.Join(err, fmt.Errorf("staging directory %s: not a private directory of user %d with a socket only; it stays", left, os.Geteuid()), f.Close())
			continue
		}
		removed = append(removed, left)
	}
	return removed, err
}

// removeStale removes the stale socket and reports whether there was one.
func (l location) removeStale() (bool, error) {
	f, err := l.findStale()
	if f == nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if uid, _ := ownerOf(info); uid != os.Geteuid() {
		return false, fmt.Errorf("belongs to user %d; expected user %d, so run the command as user %[1]d", uid, os.Geteuid())
	}
	return true, withRemedy(files.WithoutPath(l.remove(info), l.path()))
}
