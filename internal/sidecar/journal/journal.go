// Package journal keeps records on disk, so that they survive the process and a power loss: one
// file per record, with two halves that are written in turn (docs/design/state-directory.md).
//
// Layout of the state directory:
//
//	lock                            held by the process that owns the directory (Lock)
//	attachments/<containerID>.json  one record each
//	attachments/.new.json<number>   temporary files
//	quarantine/                     unusable files, kept for an operator
package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
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

// storedDefaultPool is the name of the default pool on disk, for any Options.DefaultPool: a start
// with another name finds the attachments.
const storedDefaultPool = "default"

// Options configure a journal.
type Options struct {
	// MachineID is the ID of this machine (Host.MachineID). A record of another machine is
	// quarantined, because its addresses have another owner here. Empty if unknown: records
	// of every machine are loaded.
	MachineID string
	// DefaultPool is the name of the default pool in records and in Loaded; empty for the name
	// on disk.
	DefaultPool string
	// BootID is the ID of this boot (Host.BootID). A damaged half of an earlier boot is ignored, one
	// of this boot makes its file unusable. Empty if unknown: each damaged half is ignored.
	BootID string
}

// Journal is the set of all records in a state directory. Its methods may be called
// concurrently; the caller orders the writes to one container ID.
type Journal struct {
	options     Options
	state       *directory
	attachments *directory
	quarantine  *directory

	// temporaries numbers the temporary files.
	temporaries atomic.Uint64

	removals removals
	own      ownFiles

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
	attachments, err := openSubdir(state, attachmentsName)
	if err != nil {
		return nil, errors.Join(err, state.Close())
	}
	quarantine, err := openSubdir(state, quarantineName)
	if err != nil {
		return nil, errors.Join(err, attachments.Close(), state.Close())
	}
	opts.DefaultPool = cmp.Or(opts.DefaultPool, storedDefaultPool)
	return &Journal{
		options:        opts,
		state:          state,
		attachments:    attachments,
		quarantine:     quarantine,
		own:            ownFiles{files: map[string]ownFile{}},
		futureVersions: map[string]bool{},
		reasons:        map[string]string{},
	}, nil
}

// Close makes removals durable and closes the directories. The journal must not be used afterwards.
func (j *Journal) Close() error {
	j.syncRemovals()
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.quarantine.Close(), j.attachments.Close(), j.state.Close())
}

// Dir returns the open state directory. The journal closes it.
func (j *Journal) Dir() *os.File { return j.state.file }

// errReplaced is wrapped by errors of a journal whose state directory, or attachments/ in it, is
// missing or is not the opened one.
var errReplaced = errors.New("nothing is changed until the original returns")

// Available returns nil while the path of the state directory leads to the opened directory with
// its attachments/. Otherwise the error describes what the path leads to. It takes a few system
// calls.
func (j *Journal) Available() error {
	info, err := os.Lstat(j.state.Name())
	err = j.state.check("state directory", info, err)
	if err == nil {
		info, err = j.state.Lstat(attachmentsName)
		err = j.attachments.check("directory", info, err)
	}
	if errors.Is(err, errReplaced) {
		return fmt.Errorf("%w: mount or move back the directory with %s, or restart to use the current one", err, fileID(j.state.info))
	}
	return files.WithRemedy(err, stateDirFlag)
}

// errFutureVersion: a newer version of the program wrote the file of the container ID. Replacing it
// would lose what only that version understands.
var errFutureVersion = errors.New("the record on disk was written by a newer version of this program")

// Write makes a record durable before it returns nil. After an error the disk has either the old or
// the new record, complete. A record that Load would not return unchanged is refused before
// anything is written. Every record is refused while the state directory is not Available; that
// error may also follow a write to a directory that was replaced meanwhile.
func (j *Journal) Write(r record.Record) error {
	if r.Pool == j.options.DefaultPool {
		r.Pool = storedDefaultPool
	}
	raw, err := j.encode(r)
	if err == nil {
		err = j.whileAvailable(func() error { return j.write(r.ContainerID, raw) })
	}
	if err != nil {
		return fmt.Errorf("record of container ID %q: %w", r.IDInUse(), err)
	}
	return nil
}

// Remove durably deletes the record of a container ID. A missing record is not an error. After
// an error the record may still exist. Nothing is deleted while the state directory is not
// Available.
func (j *Journal) Remove(containerID string) error { return j.removeRecord(containerID, false) }

// RemoveSoon is Remove, except that a power loss may bring the record back: until the next Write, or for
// removalSyncDelay. Then every other record is as it was at the removal, too, because a Write makes the
// removals before it durable.
func (j *Journal) RemoveSoon(containerID string) error { return j.removeRecord(containerID, true) }

func (j *Journal) removeRecord(containerID string, soon bool) error {
	if !record.ValidContainerID(containerID) {
		return fmt.Errorf("record of %q: not a container ID", containerID)
	}
	if err := j.whileAvailable(func() error { return j.remove(containerID, soon) }); err != nil {
		// By its name alone: a container of a runtime has another ID.
		return fmt.Errorf("record %s: %w", containerID+fileSuffix, err)
	}
	return nil
}

// Writable returns why a record could not be made durable now (disk full, directory read-only,
// missing or replaced), by writing, syncing and removing a file next to the records. Nothing is
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

// remove unlinks the file of a container ID, durably now or soon. A missing one is synced too: an
// earlier removal may have failed in its fsync.
func (j *Journal) remove(containerID string, soon bool) error {
	if j.futureVersions[containerID] {
		return errFutureVersion
	}
	j.own.take(containerID)
	entries, err := j.attachments.self() // as in replace
	if err != nil {
		return err
	}
	defer entries.Close()
	failpoint.Reach(failpoint.RemoveBegins)
	if err := j.attachments.Remove(containerID + fileSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return files.In(j.attachments.Root, err)
	}
	failpoint.Reach(failpoint.RemoveDone)
	if soon {
		j.removals.add(j.syncRemovals)
		return nil
	}
	removed := j.removals.count()
	err = entries.Sync()
	failpoint.Reach(failpoint.RemoveDurable)
	j.removals.durable(removed, err)
	return err
}

// probe writes, syncs and removes a file next to the records.
func (j *Journal) probe() error {
	failpoint.Reach(failpoint.ProbeBegins)
	name, f, err := j.createTemporary()
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.ProbeMade)
	_, err = f.WriteString("probe\n")
	if err == nil {
		err = f.Sync()
	}
	failpoint.Reach(failpoint.ProbeWritten)
	err = errors.Join(err, f.Close(), j.attachments.Remove(name))
	failpoint.Reach(failpoint.ProbeGone)
	return err
}
