package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/internal/boltfile"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// readAttempts bounds the attempts to read a file that a running sidecar changes meanwhile.
const readAttempts = 20

// Read returns the contents of the journal in a state directory, of a running sidecar, too; they are empty if there is
// none. The default pool has its name on disk. Nothing is changed. It fails if Load would fail or quarantine the file
// as a whole.
func Read(stateDir string) (Metadata, Loaded, error) {
	c, err := readRunning(stateDir)
	l, _, _ := c.decode(storedDefaultPool)
	return c.Metadata, l, err
}

// Backup copies the journal in a state directory, of a running sidecar, too, to a new file, which is durable when it
// returns nil. It fails as Read does, and if the file exists.
func Backup(stateDir, to string) (records int, err error) {
	c, err := readRunning(stateDir)
	if err != nil {
		return 0, err
	}
	dir, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	f, err := boltfile.Create(dir, filepath.Base(to), c.fill)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", to, files.Cause(err))
	}
	f.Close(nil)
	names, err := dir.Open(".")
	if err == nil {
		err = errors.Join(names.Sync(), names.Close())
	}
	return len(c.records), err
}

func readRunning(stateDir string) (c content, err error) {
	dir, err := os.OpenRoot(stateDir)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	defer dir.Close()
	for range readAttempts {
		c, err = readFile(dir, fileName)
		if _, changed := errors.AsType[boltfile.DamageError](err); !changed {
			break
		}
	}
	return c, files.AtPath(dir, fileName, err)
}
