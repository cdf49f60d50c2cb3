// Package journal keeps records on disk so that they outlive the process and
// the machine's power: one file per record, replaced as a whole, never changed
// while it may be a record (docs/how-it-works.md, On disk).
//
// Layout of the state folder:
//
//	lock                            held by the process that owns the folder (Lock)
//	attachments/<containerID>.json  one record each
//	attachments/.spare.json<number> to be written over (spares)
//	quarantine/                     what could not be read, kept for a person
package journal

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

const (
	attachmentsName = "attachments"
	quarantineName  = "quarantine"
	lockName        = "lock"

	suffix   = ".json"
	fileMode = 0o600
)

// ErrNewer is wrapped by Write and Remove of a container ID whose file was
// written by a newer version of the program: to replace it would lose what only
// that version understands.
var ErrNewer = errors.New("its record on disk was written by a newer version of this program")

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
	attachments *folder
	quarantine  *folder
	// lock is that of a folder which took the place of the one that the caller
	// has locked; nil where there is none.
	lock  *os.File
	known *known
	// spares are those of attachments.
	spares *spares

	// mu lets Load and takeOver see no write half done; writes do not exclude each other.
	mu    sync.RWMutex
	newer map[string]bool
	// reasons say what is wrong with the files in quarantine/, by name.
	reasons map[string]string
}

// Open opens the journal in a state folder, making the folder and its
// subfolders (mode 0700) where they are missing. The caller holds the folder's
// Lock for as long as it uses the journal. A folder that is a symbolic link, no
// folder, or another user's is refused.
func Open(dir string, opts Options) (*Journal, error) {
	state, err := openState(dir)
	if err != nil {
		return nil, err
	}
	return openIn(state, opts.MachineID)
}

// openIn opens the journal in an opened state folder, which is closed after an error.
func openIn(state *folder, machineID string) (*Journal, error) {
	attachments, err := openSubfolder(state, attachmentsName)
	if err != nil {
		return nil, errors.Join(err, state.Close())
	}
	quarantine, err := openSubfolder(state, quarantineName)
	if err != nil {
		return nil, errors.Join(err, attachments.Close(), state.Close())
	}
	return &Journal{
		machineID:   machineID,
		state:       state,
		attachments: attachments,
		quarantine:  quarantine,
		known:       newKnown(),
		spares:      &spares{},
		newer:       map[string]bool{},
		reasons:     map[string]string{},
	}, nil
}

// Close gives the folder's descriptors back. The journal is of no use afterwards.
func (j *Journal) Close() error {
	err := errors.Join(j.quarantine.Close(), j.attachments.Close(), j.state.Close())
	if j.lock != nil {
		err = errors.Join(err, j.lock.Close())
	}
	return err
}

// Write makes a record durable before it returns nil: another file, fsync, its
// rename, fsync of the folder. After an error either the old or the new record
// is on disk, whole. A record that Load would not give back unchanged is refused
// before anything is written. The journal keeps the record: from the call on the
// caller changes nothing that it refers to, such as an element of its contexts.
func (j *Journal) Write(r record.Record) error {
	data, err := j.encode(r)
	if err == nil {
		err = j.settle()
	}
	if err != nil {
		return fmt.Errorf("journal: write record of container ID %q: %w", r.ContainerID, err)
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	if j.newer[r.ContainerID] {
		return fmt.Errorf("journal: write record of container ID %s: %w", r.ContainerID, ErrNewer)
	}
	if err := j.replace(r.ContainerID+suffix, data); err != nil {
		return fmt.Errorf("journal: write record of container ID %s: %w", r.ContainerID, err)
	}
	j.known.remember(r)
	return nil
}

// Remove deletes the record of a container ID durably. One that is not there is
// no error. After an error it may still be there.
func (j *Journal) Remove(containerID string) error {
	if !record.ValidContainerID(containerID) {
		return fmt.Errorf("journal: remove record: %q is no container ID", containerID)
	}
	if err := j.settle(); err != nil {
		return fmt.Errorf("journal: remove record of container ID %s: %w", containerID, err)
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	if j.newer[containerID] {
		return fmt.Errorf("journal: remove record of container ID %s: %w", containerID, ErrNewer)
	}
	err := j.remove(containerID + suffix)
	if err != nil {
		return fmt.Errorf("journal: remove record of container ID %s: %w", containerID, err)
	}
	j.known.forget(containerID)
	return nil
}

// Writable tells why a record could not be made durable now (disk full, folder
// read-only or gone), by writing, syncing and removing a file beside the records.
func (j *Journal) Writable() error {
	if err := j.settle(); err != nil {
		return fmt.Errorf("journal: the state folder cannot be written: %w", err)
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	if err := j.probe(); err != nil {
		return fmt.Errorf("journal: the state folder cannot be written: %w", err)
	}
	return nil
}

// containerIDOf is the container ID that a file name stands for, empty if none.
func containerIDOf(name string) string {
	id, ok := strings.CutSuffix(name, suffix)
	if !ok || !record.ValidContainerID(id) {
		return ""
	}
	return id
}
