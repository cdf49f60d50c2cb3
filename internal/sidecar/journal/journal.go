// Package journal keeps records on disk, so that they survive the process and a power loss: one
// file per record, replaced as a whole (docs/design/state-directory.md).
//
// Layout of the state directory:
//
//	lock                            held by the process that owns the directory (Lock)
//	marker                          a random ID that identifies the directory (Available)
//	attachments/<containerID>.json  one record each
//	attachments/.new.json<number>   temporary files
//	quarantine/                     unusable files, kept for an operator
package journal

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

const (
	attachmentsName = "attachments"
	quarantineName  = "quarantine"
	lockName        = "lock"

	fileSuffix = ".json"
	fileMode   = 0o600
)

// ErrFutureVersion is wrapped by Write and Remove of a container ID whose file was written by a
// newer version of the program: replacing it would lose what only that version understands.
var ErrFutureVersion = errors.New("the record on disk was written by a newer version of this program")

// Options configure a journal.
type Options struct {
	// MachineID is the ID of this machine (Host.MachineID). A record of another machine is
	// quarantined, because its addresses have another owner here. Empty if unknown: records
	// of every machine are loaded.
	MachineID string
}

// Journal is the set of all records in a state directory. Its methods may be called
// concurrently; the caller orders the writes to one container ID.
type Journal struct {
	machineID   string
	state       *directory
	marker      marker
	attachments *directory
	quarantine  *directory

	// writes numbers the temporary files.
	writes atomic.Uint64

	// mu is held by Load, and shared by writes, so that Load sees none half done.
	mu sync.RWMutex
	// futureVersions has the container IDs whose files a newer version wrote.
	futureVersions map[string]bool
	// reasons are why the files in quarantine/ are unusable, by name.
	reasons map[string]string
}

// Open opens the journal in a state directory, and creates the directory and its subdirectories
// (mode 0700) if they are missing. The caller holds the directory's Lock while it uses the
// journal. A symbolic link, a file, and a directory of another user are refused.
func Open(dir string, opts Options) (*Journal, error) {
	state, err := openStateDir(dir)
	if err != nil {
		return nil, err
	}
	marker, err := openMarker(state)
	if err != nil {
		return nil, errors.Join(err, state.Close())
	}
	attachments, err := openSubdir(state, attachmentsName)
	if err != nil {
		return nil, errors.Join(err, marker.file.Close(), state.Close())
	}
	quarantine, err := openSubdir(state, quarantineName)
	if err != nil {
		return nil, errors.Join(err, attachments.Close(), marker.file.Close(), state.Close())
	}
	return &Journal{
		machineID:      opts.MachineID,
		state:          state,
		marker:         marker,
		attachments:    attachments,
		quarantine:     quarantine,
		futureVersions: map[string]bool{},
		reasons:        map[string]string{},
	}, nil
}

// Close closes the directories. The journal must not be used afterwards.
func (j *Journal) Close() error {
	_ = j.marker.file.Close() // only read
	return errors.Join(j.quarantine.Close(), j.attachments.Close(), j.state.Close())
}

// Dir returns the open state directory. The journal closes it.
func (j *Journal) Dir() *os.File { return j.state.file }

// Write makes a record durable before it returns nil: a new file, fsync, rename, fsync of the
// directory. After an error the disk has either the old or the new record, complete. A record
// that Load would not return unchanged is refused before anything is written. Every record is
// refused while the state directory is not Available; an error that wraps ErrReplaced may also
// follow a write to a directory that was replaced meanwhile.
func (j *Journal) Write(r record.Record) error {
	data, err := j.encode(r)
	if err == nil {
		err = j.whileAvailable(func() error { return j.replace(r.ContainerID, data) })
	}
	if err != nil {
		return fmt.Errorf("record of container ID %q: %w", r.ContainerID, err)
	}
	return nil
}

// Remove durably deletes the record of a container ID. A missing record is not an error. After
// an error the record may still exist. Nothing is deleted while the state directory is not
// Available.
func (j *Journal) Remove(containerID string) error {
	if !record.ValidContainerID(containerID) {
		return fmt.Errorf("record of %q: not a container ID", containerID)
	}
	if err := j.whileAvailable(func() error { return j.remove(containerID) }); err != nil {
		return fmt.Errorf("record of container ID %q: %w", containerID, err)
	}
	return nil
}

// Writable returns why a record could not be made durable now (disk full, directory read-only,
// missing or replaced), by writing, syncing and removing a file beside the records. Nothing is
// written while the state directory is not Available.
func (j *Journal) Writable() error {
	return j.whileAvailable(func() error {
		if err := j.probe(); err != nil {
			// Without the name of the file, which differs each time.
			return fmt.Errorf("state directory: %s cannot be written: %w", j.attachments.Name(), files.WithRemedy(files.Cause(err), stateDirFlag))
		}
		return nil
	})
}

// whileAvailable changes the directory. The change counts only if the directory is available
// before and after it: otherwise the next start would not find the change.
func (j *Journal) whileAvailable(change func() error) error {
	if err := j.Available(); err != nil {
		return err
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	if err := change(); err != nil {
		return err
	}
	return j.Available()
}

// containerIDFromName returns the container ID of a file name; empty if it is of none.
func containerIDFromName(name string) string {
	id, ok := strings.CutSuffix(name, fileSuffix)
	if !ok || !record.ValidContainerID(id) {
		return ""
	}
	return id
}
