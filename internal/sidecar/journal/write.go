package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// ownFiles are the files that this process wrote, by container ID, each without a failed write. Only
// these are overwritten: of any other, the half that is read may not be durable, and the write to the
// other half would destroy the only one that is.
type ownFiles struct {
	mu    sync.Mutex
	files map[string]ownFile
}

// ownFile identifies a file with two halves of one block, and the sequence of its newest half.
type ownFile struct{ inode, sequence uint64 }

// take returns the file of a container ID and forgets it. Without one the result is the zero value.
func (o *ownFiles) take(containerID string) ownFile {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.files[containerID]
	delete(o.files, containerID)
	return f
}

func (o *ownFiles) put(containerID string, f ownFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.files[containerID] = f
}

// write makes the JSON of a record durable as that of a container ID: in the older half of its file, or,
// where that cannot be, in a new file.
func (j *Journal) write(containerID string, raw []byte) error {
	if j.futureVersions[containerID] {
		return errFutureVersion
	}
	f, err := j.overwrite(containerID, j.own.take(containerID), raw)
	if f == (ownFile{}) && err == nil {
		f, err = j.replace(containerID, raw)
	}
	if err == nil && f != (ownFile{}) {
		j.own.put(containerID, f)
	}
	return err
}

// overwrite writes a record into the older half of a file. The newest one stays valid
// until the new one is durable (docs/design/state-directory.md, Records). The zero value without an
// error means that nothing was written.
func (j *Journal) overwrite(containerID string, own ownFile, raw []byte) (ownFile, error) {
	half := j.seal(own.sequence+1, raw)
	if own == (ownFile{}) || len(half) != blockSize {
		return ownFile{}, nil
	}
	failpoint.Reach(failpoint.WriteBegins)
	f, ok := j.openOwn(containerID, own)
	if !ok {
		return ownFile{}, nil
	}
	err := j.syncPending()
	if err == nil {
		_, err = f.WriteAt(half, int64(own.sequence%2)*blockSize)
	}
	if err == nil {
		failpoint.Reach(failpoint.WriteWritten)
		err = datasync(f)
	}
	failpoint.Reach(failpoint.WriteDurable)
	own.sequence++
	return own, errors.Join(err, f.Close())
}

// openOwn opens the file of a container ID for writing if it is still this one, and has no other name.
func (j *Journal) openOwn(containerID string, own ownFile) (*os.File, bool) {
	name := containerID + fileSuffix
	info, err := j.attachments.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != 2*blockSize {
		return nil, false
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Ino != own.inode || stat.Nlink != 1 {
		return nil, false
	}
	f, err := j.attachments.OpenFile(name, os.O_WRONLY, 0)
	return f, err == nil
}

// datasync makes the content of a file durable. Its size has not changed.
func datasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// createTemporary creates a file with a name that neither a record nor another write has. Load
// removes such files.
func (j *Journal) createTemporary() (name string, f *os.File, err error) {
	name = fmt.Sprintf(".new%s%d", fileSuffix, j.temporaries.Add(1))
	f, err = j.attachments.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	return name, f, files.In(j.attachments.Root, err)
}

// replace writes a record into the first half of a new file, which is synced and then renamed to that
// of the container ID; then the directory is synced. After an error the name belongs to the old or
// to the new file. The result is the zero value for a file that must not be overwritten: a kill may
// interrupt a write of several blocks.
func (j *Journal) replace(containerID string, raw []byte) (own ownFile, err error) {
	entries, err := j.attachments.self() // before the change, so that its fsync reports each error since
	if err != nil {
		return own, err
	}
	defer entries.Close()
	failpoint.Reach(failpoint.WriteBegins)
	temporary, f, err := j.createTemporary()
	if err != nil {
		return own, err
	}
	failpoint.Reach(failpoint.WriteMade)
	half := j.seal(1, raw)
	_, err = f.WriteAt(append(half, blank(len(half))...), 0)
	if err == nil {
		failpoint.Reach(failpoint.WriteWritten)
		err = f.Sync()
	}
	var info fs.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		failpoint.Reach(failpoint.WriteSynced)
		err = files.In(j.attachments.Root, j.attachments.Rename(temporary, containerID+fileSuffix))
	}
	if err != nil {
		_ = j.attachments.Remove(temporary)
		return own, err
	}
	failpoint.Reach(failpoint.WriteRenamed)
	removed := j.removals.count()
	err = entries.Sync()
	failpoint.Reach(failpoint.WriteDurable)
	j.removals.durable(removed, err)
	if len(half) == blockSize {
		own = ownFile{inode: info.Sys().(*syscall.Stat_t).Ino, sequence: 1}
	}
	return own, err
}
