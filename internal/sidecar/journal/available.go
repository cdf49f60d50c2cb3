package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// ErrReplaced is wrapped by errors of a journal whose state directory, or attachments/ in it, is
// missing or is not the opened one. Nothing is changed until the opened one returns.
var ErrReplaced = errors.New("nothing is changed until the original returns")

// Available returns nil while the path of the state directory leads to the opened directory, with
// its marker and its attachments/. Otherwise the error describes what the path leads to, and
// wraps ErrReplaced if something is missing or replaced. It takes a few system calls.
func (j *Journal) Available() error {
	if err := j.state.checkAt(unix.AT_FDCWD, j.state.Name(), "state directory", j.state.Name()); err != nil {
		return j.unavailableError(err)
	}
	state := int(j.state.file.Fd())
	if err := j.marker.checkAt(state, markerName, "marker", j.marker.file.Name()); err != nil {
		return j.unavailableError(err)
	}
	if err := j.attachments.checkAt(state, attachmentsName, "directory", j.attachments.Name()); err != nil {
		return j.unavailableError(err)
	}
	return nil
}

func (j *Journal) unavailableError(err error) error {
	if !errors.Is(err, ErrReplaced) {
		return files.WithRemedy(err, stateDirFlag)
	}
	return fmt.Errorf("%w: mount or move back the directory whose file %q has %s, or restart to use the current one", err, markerName, j.marker.id)
}

// fileID is the device and inode of an open file or directory. While it is open, no other file
// gets its inode.
type fileID struct{ device, inode uint64 }

func fileIDOf(open *os.File) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(open.Fd()), &st); err != nil {
		return fileID{}, &fs.PathError{Op: "stat", Path: open.Name(), Err: err}
	}
	return fileIDFrom(&st), nil
}

func fileIDFrom(st *unix.Stat_t) fileID { return fileID{uint64(st.Dev), st.Ino} }

// String returns device and inode for errors.
func (id fileID) String() string {
	return fmt.Sprintf("device %d:%d, inode %d", unix.Major(id.device), unix.Minor(id.device), id.inode)
}

// checkAt returns nil if a name in the directory of a descriptor is the file of this ID. It does
// not follow a link. kind and path name the file in the error.
func (id fileID) checkAt(dirfd int, name, kind, path string) error {
	var st unix.Stat_t
	err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	for errors.Is(err, unix.EINTR) { // some file systems return it after a signal
		err = unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	switch found := fileIDFrom(&st); {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%s %s: %w; %w", kind, path, err, ErrReplaced)
	case err != nil:
		return fmt.Errorf("%s %s: %w", kind, path, err)
	case found != id:
		return fmt.Errorf("%s %s leads to %s (%s; expected %s); %w", kind, path, typeName(st.Mode), found, id, ErrReplaced)
	default:
		return nil
	}
}

// typeName describes what replaces a directory or file.
func typeName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "another directory or file system"
	case unix.S_IFLNK:
		return "a symbolic link"
	default:
		return "another file"
	}
}
