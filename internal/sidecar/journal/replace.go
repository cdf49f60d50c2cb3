package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// temporaryName returns a file name that is not that of a record, and that no other write uses.
// Load removes such files.
func (j *Journal) temporaryName() string {
	return fmt.Sprintf(".new%s%d", fileSuffix, j.writes.Add(1))
}

// replace makes data the content of the file of a container ID.
func (j *Journal) replace(containerID string, data []byte) error {
	if j.futureVersions[containerID] {
		return ErrFutureVersion
	}
	return replace(j.attachments, j.temporaryName(), containerID+fileSuffix, data)
}

// replace makes data the content of a file in a directory: it is written to a temporary file,
// which is synced and renamed; then the directory is synced. After an error the name belongs to
// the old or to the new file.
//
// A file is written once: after a failed fsync the kernel may mark lost pages as clean, and a
// second fsync would succeed.
func replace(in *directory, temporary, name string, data []byte) error {
	entries, err := in.self() // before the change, so that its fsync reports each error since
	if err != nil {
		return err
	}
	defer entries.Close()
	failpoint.Reach(failpoint.WriteBegins)
	f, err := createFile(in, temporary)
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.WriteMade)
	_, err = f.WriteAt(data, 0)
	if err == nil {
		failpoint.Reach(failpoint.WriteWritten)
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		failpoint.Reach(failpoint.WriteSynced)
		err = files.In(in.Root, in.Rename(temporary, name))
	}
	if err != nil {
		_ = in.Remove(temporary)
		return err
	}
	failpoint.Reach(failpoint.WriteRenamed)
	err = entries.Sync()
	failpoint.Reach(failpoint.WriteDurable)
	return err
}

// createFile creates an empty file; a file of that name is an error.
func createFile(in *directory, name string) (*os.File, error) {
	f, err := in.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	return f, files.In(in.Root, err)
}

// remove durably unlinks the file of a container ID. A missing one is synced too: an earlier
// removal may have failed in its fsync.
func (j *Journal) remove(containerID string) error {
	if j.futureVersions[containerID] {
		return ErrFutureVersion
	}
	entries, err := j.attachments.self() // as in replace
	if err != nil {
		return err
	}
	defer entries.Close()
	// The blocks of an open file are not freed. In the fsync, for which a client waits, that
	// would take as long as the rest of it on a disk mounted with the option discard.
	f, err := j.attachments.open(containerID + fileSuffix)
	if err == nil {
		defer f.Close()
	}
	failpoint.Reach(failpoint.RemoveBegins)
	if err := j.attachments.Remove(containerID + fileSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return files.In(j.attachments.Root, err)
	}
	failpoint.Reach(failpoint.RemoveDone)
	err = entries.Sync()
	failpoint.Reach(failpoint.RemoveDurable)
	return err
}

// probe writes, syncs and removes a file beside the records.
func (j *Journal) probe() error {
	name := j.temporaryName()
	failpoint.Reach(failpoint.ProbeBegins)
	f, err := createFile(j.attachments, name)
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
