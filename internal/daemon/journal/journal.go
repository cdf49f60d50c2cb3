// Package journal keeps records on disk, so that they survive the process and a power loss: in one bbolt file,
// journal.db, that each start writes anew (docs/design/state-directory.md).
package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/delegated-ipam/delegated-ipam/internal/boltfile"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

const (
	fileName = "journal.db"
	newName  = fileName + ".new"
	// QuarantineName is the directory of damaged files and records.
	QuarantineName = "quarantine"
)

// Files are the names of the files that a journal makes in its state directory.
var Files = []string{fileName, newName}

// storedDefaultPool is the name on disk of any Options.DefaultPool: a start with another one finds the attachments.
const storedDefaultPool = "default"

// Options configure a journal.
type Options struct {
	// Metadata are written into a new file; one that exists keeps its BootID until SetBoot. A file of another MachineID
	// is quarantined, because its addresses have another owner here; empty if unknown. Format is ignored.
	Metadata
	// DefaultPool is the name of the default pool in records and in Loaded; empty for the name on disk.
	DefaultPool string
}

// Journal is the set of all records in a state directory. Its methods may be called concurrently; the caller orders the
// changes of one record.
type Journal struct {
	options Options
	state   *statedir.Dir

	// joining guards next, the transaction that further changes join, and removals, until a commit has made them
	// durable.
	joining  sync.Mutex
	next     *transaction
	removals []boltfile.Entry
	// removing calls commitRemovals: one timer, or each failure would begin further repetitions.
	removing *time.Timer

	// committing is held by a commit, and by what replaces the file.
	committing sync.Mutex
	// file is nil before the first commit and after a failed one: the next is to a new file.
	file   *boltfile.File
	totals totals
	closed bool

	// naming is held while a file gets its name; named is the one that has it, nil if that is unknown.
	naming sync.RWMutex
	named  fs.FileInfo

	// reasons are why files in quarantine/ are unusable, by name; they are found once, because the files are read.
	reasons sync.Map
}

// Open opens the journal in a locked state directory, which stays open. Nothing is read or written.
func Open(state *statedir.Dir, opts Options) *Journal {
	opts.DefaultPool = cmp.Or(opts.DefaultPool, storedDefaultPool)
	j := &Journal{options: opts, state: state}
	j.removing = time.AfterFunc(math.MaxInt64, j.commitRemovals)
	return j
}

// Close closes the file. The journal must not be used afterwards.
func (j *Journal) Close() {
	j.commitRemovals()
	j.committing.Lock()
	defer j.committing.Unlock()
	j.closed = true
	j.removing.Stop()
	j.file.Close()
	j.file = nil
}

// Available returns nil while the path of the state directory leads to the opened directory with the opened
// file. Otherwise the error describes what it leads to. It takes a few system calls.
func (j *Journal) Available() error {
	j.naming.RLock()
	defer j.naming.RUnlock()
	return j.state.Available(fileName, j.named)
}

// Write makes a record durable before it returns nil, in a transaction that concurrent calls share. The same transaction
// removes those of the owners instead in its pool. After an error the disk has all changes or none. A record that Load
// would not return unchanged is refused, and every record while the state directory is not Available; that error may also
// follow a change in a directory that was replaced meanwhile.
func (j *Journal) Write(r attachment.Record, instead ...string) error {
	e, err := j.entry(r)
	if err != nil {
		return fmt.Errorf("record of container ID %q: %w", r.IDInUse(), err)
	}
	return j.change(append(j.removalsOf(r.Pool, instead), e)...)
}

func (j *Journal) removalsOf(pool string, owners []string) (all []boltfile.Entry) {
	for _, owner := range owners {
		all = append(all, boltfile.Entry{Key: key(j.stored(pool), owner)})
	}
	return all
}

func (j *Journal) entry(r attachment.Record) (boltfile.Entry, error) {
	r.Pool = j.stored(r.Pool)
	k := key(r.Pool, r.Owner)
	raw, err := encode(r)
	if len(k) > bbolt.MaxKeySize || strings.Contains(r.Pool, "\x00") {
		err = fmt.Errorf("pool and owner have %d bytes; expected at most %d, and none of the pool is 0", len(k)-1, bbolt.MaxKeySize-1)
	}
	return boltfile.Entry{Key: k, Value: seal(k, raw)}, err
}

func (j *Journal) stored(pool string) string {
	if pool == j.options.DefaultPool {
		return storedDefaultPool
	}
	return pool
}

// removalDelay is how long the last removal waits for another change that makes it durable, too, and retryDelay how long
// after a failure.
const removalDelay, retryDelay = 10 * time.Millisecond, time.Second

// Remove removes the records of owners; a missing one is not an error. That becomes durable later: with the next change,
// removalDelay after the last removal, or in Close. It is for records whose addresses are released: a start that still
// finds one releases them again.
func (j *Journal) Remove(pool string, owners ...string) error {
	if err := j.Available(); err != nil {
		return err
	}
	j.joining.Lock()
	defer j.joining.Unlock()
	j.removals = append(j.removals, j.removalsOf(pool, owners)...)
	j.removing.Reset(removalDelay)
	return nil
}

// commitRemovals makes the removals durable that wait, and repeats what fails.
func (j *Journal) commitRemovals() {
	j.committing.Lock()
	defer j.committing.Unlock()
	j.joining.Lock()
	waiting := len(j.removals) > 0
	j.joining.Unlock()
	if waiting && !j.closed && j.commit(nil) != nil {
		j.removing.Reset(retryDelay)
	}
}

// Writable returns why a record could not be made durable now (disk full, I/O error, directory missing or
// replaced), by a commit without a change. After a failed commit it writes the journal anew.
func (j *Journal) Writable() error {
	j.commitRemovals() // which need no space
	return j.change()
}

// transaction are changes that become durable together.
type transaction struct {
	changes []boltfile.Entry
	commit  func() (unavailable, err error) // once: the other callers wait for the first one
}

// change is Write for entries; one without a value is a removal. Changes are collected while another transaction is
// committed; otherwise they are committed without a wait.
func (j *Journal) change(changes ...boltfile.Entry) error {
	j.joining.Lock()
	if j.next == nil {
		tx := &transaction{}
		tx.commit = sync.OnceValues(func() (unavailable, err error) {
			j.committing.Lock()
			defer j.committing.Unlock()
			runtime.Gosched() // those whose changes have just become durable may have further ones
			j.joining.Lock()
			j.next = nil
			j.joining.Unlock()
			return j.commitAvailable(tx.changes)
		})
		j.next = tx
	}
	tx := j.next
	tx.changes = append(tx.changes, changes...)
	j.joining.Unlock()
	unavailable, err := tx.commit()
	if boltfile.Unchanged(err) { // there may be space for these changes alone
		j.committing.Lock()
		defer j.committing.Unlock()
		unavailable, err = j.commitAvailable(changes)
	}
	if err != nil {
		return j.error(err)
	}
	return unavailable
}

// commitAvailable is commit in a directory that is Available, also afterwards: in another one the next start would not
// find the changes.
func (j *Journal) commitAvailable(changes []boltfile.Entry) (unavailable, err error) {
	if unavailable = j.Available(); unavailable != nil {
		return unavailable, nil
	}
	if err = j.commit(changes); err != nil {
		return nil, err
	}
	return j.Available(), nil
}

// commit makes changes durable, and the removals that wait. After an error the kernel may show what is not on the disk, so
// the file is written anew before anything else.
func (j *Journal) commit(changes []boltfile.Entry) error {
	if j.file == nil {
		if err := j.recover(); err != nil {
			return err
		}
	}
	j.joining.Lock()
	removals := j.removals
	j.joining.Unlock()
	begins, durable := failpoint.ProbeBegins, failpoint.ProbeDurable
	if len(changes) > 0 {
		begins, durable = failpoint.CommitBegins, failpoint.CommitDurable
	} else if len(removals) > 0 {
		begins, durable = failpoint.RemovalBegins, failpoint.RemovalDurable
	}
	failpoint.Reach(begins)
	t := j.totals
	err := j.file.Update(func(tx *bbolt.Tx) (err error) { t, err = j.apply(tx, slices.Concat(removals, changes)); return err })
	failpoint.Reach(durable)
	switch {
	case err == nil:
		j.totals = t
		j.joining.Lock()
		j.removals = slices.Clone(j.removals[len(removals):])
		j.joining.Unlock()
	case !boltfile.Unchanged(err):
		j.file.Close()
		j.file = nil
	}
	return err
}

// probeSize is the space for a record, in bytes, that a commit without a change needs.
const probeSize = 8 * boltfile.PageSize

// apply makes changes in a transaction, and returns the totals with them.
func (j *Journal) apply(tx *bbolt.Tx, changes []boltfile.Entry) (totals, error) {
	records, t := tx.Bucket(recordsBucket), j.totals
	size, adds := 0, false
	if len(changes) == 0 {
		size, adds = probeSize, true
	}
	for _, c := range changes {
		before := records.Get(c.Key)
		t.add(before, -1)
		t.add(c.Value, 1)
		size, adds = size+len(c.Value), adds || before == nil && c.Value != nil
		var err error
		if c.Value == nil {
			err = records.Delete(c.Key)
		} else {
			err = records.Put(c.Key, c.Value)
		}
		if err != nil {
			return t, err
		}
	}
	if adds {
		if err := j.file.Reserve(tx, size); err != nil {
			return t, err
		}
	}
	return t, put(tx.Bucket(metadataBucket), totalsKey, t)
}

// recover writes the file anew. Every record must be intact, because the caller knows all of them.
func (j *Journal) recover() error {
	c, err := j.read(fileName)
	if err == nil && !c.intact() {
		err = boltfile.Damaged("the checksum of a record does not match")
	}
	if found, ok := errors.AsType[boltfile.DamageError](err); ok {
		return fmt.Errorf("%w; restart the daemon, which moves it to %s/", found, QuarantineName)
	}
	if err != nil {
		return err
	}
	return j.rewrite(c.records)
}

// rewrite replaces the file by a new one, of which every byte and the name are durable.
func (j *Journal) rewrite(records []boltfile.Entry) (err error) {
	j.file.Close() // after a failure below it may have no name any more
	j.file = nil
	failpoint.Reach(failpoint.LeftoverRemoving)
	_ = j.state.Remove(newName) // of a killed process
	failpoint.Reach(failpoint.LeftoverRemoved)
	f, err := boltfile.Create(j.state.Root, newName, content{j.options.Metadata, records}.fill()...)
	if err == nil {
		err = j.name(f)
	}
	if err != nil {
		f.Close()
		_ = j.state.Remove(newName) // the disk may be full
		failpoint.Reach(failpoint.LeftoverRemoved)
		return err
	}
	j.file, j.totals = f, totalsOf(records)
	return nil
}

// name gives a new file its durable name.
func (j *Journal) name(f *boltfile.File) error {
	j.naming.Lock()
	defer j.naming.Unlock()
	info, err := f.Stat()
	failpoint.Reach(failpoint.JournalNaming)
	if err == nil {
		err = files.In(j.state.Root, j.state.Rename(newName, fileName))
	}
	failpoint.Reach(failpoint.JournalRenamed)
	if err != nil {
		return err
	}
	j.named = info
	err = j.state.Sync(".")
	failpoint.Reach(failpoint.JournalDurable)
	return err
}

// error adds the path of the file to an error, and what to do.
func (j *Journal) error(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", j.state.Path(fileName), files.WithRemedy(files.WithoutPath(err, j.state.Path(newName)), statedir.Flag))
}
