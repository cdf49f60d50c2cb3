package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/internal/boltfile"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// readAttempts bounds the attempts to read a file that a running sidecar changes meanwhile.
const readAttempts = 20

// Contents are what a journal has.
type Contents struct {
	Metadata
	// Records are those that a start would return, by pool and owner, and Damaged those that it would quarantine. The
	// default pool has its name on disk.
	Records []record.Record
	Damaged []Problem
}

// Read returns the contents of the journal in a state directory, of a running sidecar, too; it is empty if there is
// none. Nothing is changed. It fails if Load would fail or quarantine the file as a whole.
func Read(stateDir string) (all Contents, err error) {
	c, err := readRunning(stateDir)
	all.Metadata = c.Metadata
	for _, e := range c.records {
		r, err := recordOf(e)
		if err != nil {
			pool, owner := splitKey(e.Key)
			all.Damaged = append(all.Damaged, Problem{pool, owner, err})
			continue
		}
		all.Records = append(all.Records, r)
	}
	return all, err
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
	d, err := create(dir, filepath.Base(to), c.Metadata, c.records)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", to, files.Cause(err))
	}
	d.abandon(nil)
	return len(c.records), nil
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
		if c, err = readFile(dir, fileName); err == nil {
			return c, nil
		}
		if _, ok := errors.AsType[boltfile.DamageError](err); !ok {
			break
		}
	}
	return c, fmt.Errorf("%s: %w", filepath.Join(stateDir, fileName), files.WithoutPath(err, filepath.Join(stateDir, fileName)))
}
