package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"syscall"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

const (
	// fileMode is that of a new file.
	fileMode = 0o600
	// spare is how much a file grows at least, in bytes. Half of it stays free of new entries.
	spare = 512 << 10
	// mapped is how much of the address space a file takes at first, in bytes.
	mapped = 16 << 20
)

// File is a bbolt file that this process has made. Its methods must not be called concurrently.
type File struct {
	db   *bbolt.DB
	file *os.File
	// panicked reports that bbolt may hold its lock, for which its Close would wait.
	panicked bool
}

// Create creates a file in a directory, with what fill writes, each function in a transaction of its own, because bbolt
// holds a whole transaction in memory. The content is durable when Create returns, the name not yet. The pages that are
// not used are written, too, so that changes need no space on the disk. An existing file and a link are refused. After
// an error the file may exist.
func Create(in *os.Root, name string, fill ...func(tx *bbolt.Tx) error) (*File, error) {
	f := &File{}
	failpoint.Reach(failpoint.JournalMaking)
	open := func(name string, flag int, mode fs.FileMode) (*os.File, error) {
		file, err := in.OpenFile(name, flag|os.O_EXCL|syscall.O_NOFOLLOW, mode)
		f.file = file
		return file, files.In(in, err)
	}
	err := f.contain(func() (err error) {
		f.db, err = bbolt.Open(name, fileMode, &bbolt.Options{
			NoSync: true, PageSize: PageSize, MaxSize: MaxSize, InitialMmapSize: mapped, OpenFile: open, NoFreelistSync: true,
		})
		failpoint.Reach(failpoint.JournalMade)
		if err != nil {
			return err
		}
		f.db.AllocSize = spare
		for i := 0; i < len(fill) && err == nil; i++ {
			err = f.db.Update(fill[i])
		}
		failpoint.Reach(failpoint.JournalFilled)
		if err != nil {
			return err
		}
		return f.db.View(func(tx *bbolt.Tx) error { return f.sync(tx) })
	})
	failpoint.Reach(failpoint.JournalSynced)
	if err != nil {
		f.Close()
		return nil, err
	}
	f.db.NoSync = false
	return f, nil
}

// sync writes the pages that are not used, and makes all durable.
func (f *File) sync(tx *bbolt.Tx) error {
	info, err := f.file.Stat()
	if err == nil {
		_, err = f.file.WriteAt(make([]byte, max(0, info.Size()-tx.Size())), tx.Size())
	}
	if err == nil {
		err = f.file.Sync()
	}
	return err
}

// Update makes a change durable. After an error the file has it or not, and only Close may be called unless the error is
// Unchanged.
func (f *File) Update(change func(tx *bbolt.Tx) error) error {
	return f.contain(func() error { return f.db.Update(change) })
}

// Reserve makes the file grow unless it has free pages for so many bytes, beside those that it keeps for changes and
// removals on a full disk. It is called in a change that adds entries.
func (f *File) Reserve(tx *bbolt.Tx, size int) error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	stats := f.db.Stats()
	free := info.Size() - tx.Size() + int64(stats.FreePageN+stats.PendingPageN)*PageSize
	switch {
	case free >= int64(spare/2+size):
		return nil
	case info.Size()+spare > MaxSize:
		return bbolterrors.ErrMaxSizeReached
	}
	_, err = f.file.WriteAt(make([]byte, spare), info.Size())
	return err
}

// Stat describes the file.
func (f *File) Stat() (fs.FileInfo, error) { return f.file.Stat() }

// Close closes the file, unless it is nil. After a panic of bbolt the mapping stays.
func (f *File) Close() {
	if f == nil {
		return
	}
	if f.db != nil && !f.panicked {
		_ = f.contain(f.db.Close)
	}
	if f.file != nil {
		_ = f.file.Close()
	}
}

// Unchanged reports whether an error of Update means that nothing of the change is in use or may become durable: there
// was no space for a page.
func Unchanged(err error) bool {
	failed, ok := errors.AsType[*fs.PathError](err)
	noSpace := ok && failed.Op == "write" && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT))
	return noSpace || errors.Is(err, bbolterrors.ErrMaxSizeReached)
}

// contain calls bbolt. Its panics become errors, and so does a fault in its mapping: the file was truncated, or the
// disk cannot be read.
func (f *File) contain(call func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			f.panicked = true
			err = fmt.Errorf("bbolt: %v", cause)
		}
	}()
	return call()
}
