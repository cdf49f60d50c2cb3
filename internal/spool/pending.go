package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Remedy is what to do about a DEL that is not carried out.
const Remedy = "of one that fails fix the cause, such as a network that is not configured any more; only if the plugin holds nothing for a container ID, remove its file"

// Pending returns a line for each entry and each foreign file of a state directory; none without a spool.
func Pending(stateDir string) (lines []string, err error) {
	d, err := Open(filepath.Join(stateDir, Subdir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.List()
	for _, name := range names {
		if e, _, err := d.Read(name); err != nil {
			lines = append(lines, fmt.Sprintf("%q: %v", name, err))
		} else {
			lines = append(lines, fmt.Sprintf("%s: %s, left %s", name, e, e.Written.Format(time.RFC3339)))
		}
	}
	return lines, err
}

// Remove removes the directory in a state directory, with its quarantine, unless there is an entry. One that is being
// added then fails.
func Remove(stateDir *os.Root) error {
	d, err := Open(filepath.Join(stateDir.Name(), Subdir))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.locked(func() error {
		if names, err := d.List(); err != nil || len(names) > 0 {
			return errors.Join(err, fmt.Errorf("spool %s: %d DELs were added meanwhile; run the command again", d.path, len(names)))
		}
		return stateDir.RemoveAll(Subdir)
	})
}
