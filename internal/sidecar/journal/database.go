package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"syscall"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/boltfile"
	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

const (
	// spare is how much a file grows at least, in bytes.
	spare = 512 << 10

	// mapped is how much of the address space a file takes at first, in bytes.
	mapped = 16 << 20

	// probeSize is what must be free for a record, in bytes, so that it can be written.
	probeSize = 8 * boltfile.PageSize

	// fillPercent is the part of a page that is used in a new file: records grow.
	fillPercent = 0.8
)

// database is a bbolt file that this process has made.
type database struct {
	*bbolt.DB
	file *os.File
}

// create creates a file with records and makes its content durable, but not its name. After an error the
// file may exist.
func create(in *os.Root, name string, m Metadata, records []boltfile.Entry) (*database, error) {
	d := &database{}
	failpoint.Reach(failpoint.JournalMaking)
	open := func(name string, flag int, mode fs.FileMode) (*os.File, error) {
		f, err := in.OpenFile(name, flag|os.O_EXCL|syscall.O_NOFOLLOW, mode)
		d.file = f
		return f, files.In(in, err)
	}
	err := contain(func() (err error) {
		d.DB, err = bbolt.Open(name, fileMode, &bbolt.Options{
			NoSync: true, PageSize: boltfile.PageSize, MaxSize: boltfile.MaxSize, InitialMmapSize: mapped, OpenFile: open,
		})
		failpoint.Reach(failpoint.JournalMade)
		if err != nil {
			return err
		}
		d.AllocSize = spare
		err = d.Update(func(tx *bbolt.Tx) error { return fill(tx, m, records) })
		failpoint.Reach(failpoint.JournalFilled)
		if err != nil {
			return err
		}
		return d.View(func(tx *bbolt.Tx) error { return d.sync(tx) })
	})
	failpoint.Reach(failpoint.JournalSynced)
	if err != nil {
		d.abandon(err)
		return nil, err
	}
	d.NoSync = false
	return d, nil
}

// fill writes everything into a new file.
func fill(tx *bbolt.Tx, m Metadata, records []boltfile.Entry) error {
	bucket, err := tx.CreateBucket(recordsBucket)
	if err != nil {
		return err
	}
	bucket.FillPercent = fillPercent
	for _, e := range records {
		if err := bucket.Put(e.Key, e.Value); err != nil {
			return err
		}
	}
	metadata, err := tx.CreateBucket(metadataBucket)
	if err != nil {
		return err
	}
	m.Format = format
	return errors.Join(put(metadata, metadataKey, m), put(metadata, totalsKey, totalsOf(records)))
}

func put(b *bbolt.Bucket, key []byte, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return b.Put(key, seal(key, text))
}

// sync writes the pages that are not used, too, and makes all durable.
func (d *database) sync(tx *bbolt.Tx) error {
	info, err := d.file.Stat()
	if err == nil {
		_, err = d.file.WriteAt(make([]byte, max(0, info.Size()-tx.Size())), tx.Size())
	}
	if err == nil {
		err = d.file.Sync()
	}
	return err
}

// update makes changes durable in one transaction, and returns the totals with them.
func (d *database) update(changes []Change, t totals) (totals, error) {
	err := contain(func() error {
		return d.Update(func(tx *bbolt.Tx) error {
			bucket := tx.Bucket(recordsBucket)
			need, grows := 0, len(changes) == 0
			if grows {
				need = probeSize
			}
			for _, c := range changes {
				before := bucket.Get(c.key)
				t.change(before, c.value)
				need += len(c.value)
				grows = grows || before == nil && c.value != nil
			}
			if grows {
				if err := d.reserve(tx, need); err != nil {
					return err
				}
			}
			for _, c := range changes {
				var err error
				if c.value == nil {
					err = bucket.Delete(c.key)
				} else {
					err = bucket.Put(c.key, c.value)
				}
				if err != nil {
					return err
				}
			}
			return put(tx.Bucket(metadataBucket), totalsKey, t)
		})
	})
	return t, err
}

// reserve writes further pages unless the file has enough of them that are not in use: so many that records can be
// changed and removed on a full disk. A record that is new must leave them.
func (d *database) reserve(tx *bbolt.Tx, need int) error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	stats := d.Stats()
	free := info.Size() - tx.Size() + int64(stats.FreePageN+stats.PendingPageN)*boltfile.PageSize
	switch {
	case free >= int64(spare/2+need):
		return nil
	case info.Size()+spare > boltfile.MaxSize:
		return bbolterrors.ErrMaxSizeReached
	}
	_, err = d.file.WriteAt(make([]byte, spare), info.Size())
	return err
}

// unchanged reports whether an error of update means that nothing of the transaction is in use or may
// become durable: there was no space for a page. bbolt has rolled it back.
func unchanged(err error) bool {
	failed, ok := errors.AsType[*fs.PathError](err)
	noSpace := ok && failed.Op == "write" && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT))
	return noSpace || errors.Is(err, bbolterrors.ErrMaxSizeReached)
}

// panicError is a panic of bbolt.
type panicError struct{ cause any }

func (e *panicError) Error() string { return fmt.Sprintf("bbolt: %v", e.cause) }

// contain calls bbolt. Its panics become errors, and so does a fault in its mapping: the file was
// truncated, or the disk cannot be read.
func contain(call func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = &panicError{cause}
		}
	}()
	return call()
}

// abandon closes a file after an error. After a panic bbolt may have its lock, for which its Close would
// wait, so the mapping stays.
func (d *database) abandon(cause error) {
	if _, panicked := errors.AsType[*panicError](cause); d.DB != nil && !panicked {
		_ = contain(d.DB.Close)
	}
	if d.file != nil {
		_ = d.file.Close()
	}
}
