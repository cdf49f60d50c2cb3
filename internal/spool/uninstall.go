package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Uninstall removes the directory of a state directory, and returns the removed paths. It refuses while
// there are entries, whose addresses would stay allocated, and files in quarantine unless discard is set.
// Nothing is done without a directory, and to one that Open refuses.
func Uninstall(stateDir string, discard bool) (removed []string, err error) {
	path := filepath.Join(stateDir, Subdir)
	d, err := Open(path)
	if err != nil {
		return nil, nil //nolint:nilerr // it stays, and is reported as foreign
	}
	defer d.Close()
	names, err := d.List()
	quarantined, countErr := d.Quarantined()
	if errors.Is(countErr, fs.ErrNotExist) {
		countErr = nil
	}
	switch {
	case err != nil || countErr != nil:
		return nil, fmt.Errorf("spool %s: %w", path, errors.Join(err, countErr))
	case len(names) > 0:
		return nil, fmt.Errorf("spool %s has %d DELs of containers whose addresses the plugin may hold:\n%sstart the sidecar, which carries them out, and run the command again; %s", path, len(names), d.describe(names), Remedy)
	case quarantined > 0 && !discard:
		return nil, fmt.Errorf("spool %s/%s has %d files, whose containers may hold addresses; release those by the plugin, then run the command again with --discard-quarantine", path, Quarantine, quarantined)
	}
	return d.removeAll()
}

// Remedy is what to do about a DEL that is not carried out.
const Remedy = "of one that fails fix the cause, such as a network that is not configured any more; only if the plugin holds nothing for a container ID, remove its file"

// maxDescribed limits the files that are described.
const maxDescribed = 20

// describe returns a line for each file of the directory.
func (d *Dir) describe(names []string) string {
	var lines strings.Builder
	for i, name := range names {
		if i == maxDescribed {
			fmt.Fprintf(&lines, "  and %d more\n", len(names)-i)
			break
		}
		if e, _, err := d.Read(name); err != nil {
			fmt.Fprintf(&lines, "  %q: %v\n", name, err)
		} else {
			fmt.Fprintf(&lines, "  %s: %s, left %s\n", name, e, e.Written.Format(time.RFC3339))
		}
	}
	return lines.String()
}

// Count returns the number of entries in a state directory; 0 without a directory that can be used.
func Count(stateDir string) int {
	d, err := Open(filepath.Join(stateDir, Subdir))
	if err != nil {
		return 0
	}
	defer d.Close()
	names, _ := d.List()
	return len(names)
}

// removeAll removes all files, the directory of the quarantine, and the directory.
func (d *Dir) removeAll() (removed []string, err error) {
	aside, err := d.openat(Quarantine, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == nil {
		names, readErr := aside.Readdirnames(-1)
		err = errors.Join(readErr, unlinkAll(int(aside.Fd()), names), aside.Close(), unix.Unlinkat(d.fd(), Quarantine, unix.AT_REMOVEDIR))
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	names, readErr := d.names()
	if err = errors.Join(err, readErr, unlinkAll(d.fd(), names)); err != nil {
		return nil, fmt.Errorf("spool %s: %w", d.path, err)
	}
	if err := unix.Rmdir(d.path); err != nil {
		return nil, fmt.Errorf("spool %s: %w", d.path, err)
	}
	return []string{d.path}, nil
}

// unlinkAll removes files of a directory. One that is a directory stays, with its parent.
func unlinkAll(fd int, names []string) (err error) {
	for _, name := range names {
		if e := unix.Unlinkat(fd, name, 0); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, e))
		}
	}
	return err
}
