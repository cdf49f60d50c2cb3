// Package journal keeps records on disk so that they outlive the process and
// the machine's power: one file per record, replaced as a whole, never changed
// while it may be a record (docs/how-it-works.md, On disk).
//
// Layout of the state folder:
//
//	lock                            held by the process that owns the folder (Lock)
//	marker                          a random ID, which tells the folder from others (Available)
//	attachments/<containerID>.json  one record each
//	attachments/.new.json<number>   not yet a record
//	quarantine/                     unusable files, kept for a person
package journal

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

const (
	attachmentsName = "attachments"
	quarantineName  = "quarantine"
	lockName        = "lock"

	suffix   = ".json"
	fileMode = 0o600
)

// ErrFutureVersion is wrapped by Write and Remove of a container ID whose file was
// written by a newer version of the program: to replace it would lose what only
// that version understands.
var ErrFutureVersion = errors.New("its record on disk was written by a newer version of this program")

// Options are what a journal knows of its surroundings.
type Options struct {
	// MachineID is the machine we run on (Host.MachineID). A record of another
	// machine is quarantined: the address it names is somebody else's there.
	// Empty: not known, nothing is compared.
	MachineID string
}

// Journal is the set of all records of one state folder. Its methods may be
// called at the same time; the order of writes to one container ID is the caller's.
type Journal struct {
	machineID   string
	state       *folder
	marker      marker
	attachments *folder
	quarantine  *folder

	// writes counts the names of temporary files.
	writes atomic.Uint64

	// mu lets Load see no write half done; writes do not exclude each other.
	mu    sync.RWMutex
	newer map[string]bool
	// reasons say what is wrong with the files in quarantine/, by name.
	reasons map[string]string
}

// Open opens the journal in a state folder, making the folder and its
// subfolders (mode 0700) where they are missing. The caller holds the folder's
// Lock for as long as it uses the journal. A folder that is a symbolic link, not a
// folder, or another user's is refused.
func Open(dir string, opts Options) (*Journal, error) {
	state, err := openState(dir)
	if err != nil {
		return nil, err
	}
	marker, err := openMarker(state)
	if err != nil {
		return nil, errors.Join(err, state.Close())
	}
	attachments, err := openSubfolder(state, attachmentsName)
	if err != nil {
		return nil, errors.Join(err, marker.file.Close(), state.Close())
	}
	quarantine, err := openSubfolder(state, quarantineName)
	if err != nil {
		return nil, errors.Join(err, attachments.Close(), marker.file.Close(), state.Close())
	}
	return &Journal{
		machineID:   opts.MachineID,
		state:       state,
		marker:      marker,
		attachments: attachments,
		quarantine:  quarantine,
		newer:       map[string]bool{},
		reasons:     map[string]string{},
	}, nil
}

// Close gives the folder's descriptors back. The journal is of no use afterwards.
func (j *Journal) Close() error {
	_ = j.marker.file.Close() // nothing was written by it
	return errors.Join(j.quarantine.Close(), j.attachments.Close(), j.state.Close())
}

// Dir returns the open state folder. It is the journal's to close.
func (j *Journal) Dir() *os.File { return j.state.file }

// Write makes a record durable before it returns nil: a new file, fsync, its
// rename, fsync of the folder. After an error either the old or the new record
// is on disk, whole. A record that Load would not give back unchanged is refused
// before anything is written. So is every record while the state folder is not
// Available; an error that wraps ErrReplaced may also come after a write to a folder
// that was replaced meanwhile.
func (j *Journal) Write(r record.Record) error {
	data, err := j.encode(r)
	if err == nil {
		err = j.guarded(func() error { return j.replace(r.ContainerID, data) })
	}
	if err != nil {
		return fmt.Errorf("journal: write record of container ID %q: %w", r.ContainerID, err)
	}
	return nil
}

// Remove deletes the record of a container ID durably. One that is not there is
// not an error. After an error it may still be there. A state folder that is not
// Available is left alone, as by Write.
func (j *Journal) Remove(containerID string) error {
	if !record.ValidContainerID(containerID) {
		return fmt.Errorf("journal: remove record: %q is not a container ID", containerID)
	}
	if err := j.guarded(func() error { return j.remove(containerID) }); err != nil {
		return fmt.Errorf("journal: remove record of container ID %q: %w", containerID, err)
	}
	return nil
}

// Writable returns why a record could not be made durable now (disk full, folder
// read-only, missing or replaced), by writing, syncing and removing a file beside the
// records. Nothing is written while the state folder is not Available.
func (j *Journal) Writable() error {
	if err := j.guarded(j.probe); err != nil {
		return fmt.Errorf("journal: the state folder cannot be written: %w", err)
	}
	return nil
}

// guarded makes a change of the folder, which counts only if the folder is available
// before it and after it: otherwise the next start would not find it.
func (j *Journal) guarded(change func() error) error {
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

// containerIDOf is the container ID that a file name stands for, empty if none.
func containerIDOf(name string) string {
	id, ok := strings.CutSuffix(name, suffix)
	if !ok || !record.ValidContainerID(id) {
		return ""
	}
	return id
}
