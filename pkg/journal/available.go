package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrReplaced is wrapped by errors of a journal whose state folder, or attachments/ in it, is
// missing, or is not the one that was opened. Nothing is changed until that one returns.
var ErrReplaced = errors.New("nothing is changed until the original returns")

// Available returns nil while the path of the state folder leads to the folder that was
// opened, with its marker and its attachments/. Otherwise the error says what is there, and
// wraps ErrReplaced if that is missing or another one. It takes a few system calls.
func (j *Journal) Available() error {
	if err := j.state.at(unix.AT_FDCWD, j.state.Name(), "its path"); err != nil {
		return j.unavailable(err)
	}
	state := int(j.state.file.Fd())
	if err := j.marker.at(state, markerName, markerName); err != nil {
		return j.unavailable(err)
	}
	if err := j.attachments.at(state, attachmentsName, attachmentsName); err != nil {
		return j.unavailable(err)
	}
	return nil
}

func (j *Journal) unavailable(err error) error {
	if !errors.Is(err, ErrReplaced) {
		return fmt.Errorf("state folder %s: %w", j.state.Name(), err)
	}
	return fmt.Errorf("state folder %s: %w: mount or move back the folder whose file %q says %s, or restart to use what is there now",
		j.state.Name(), err, markerName, j.marker.id)
}

// identity is the device and inode of an open file or folder. While it is open its inode
// belongs to no other.
type identity struct{ device, inode uint64 }

func identityOf(open *os.File) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(open.Fd()), &st); err != nil {
		return identity{}, &fs.PathError{Op: "stat", Path: open.Name(), Err: err}
	}
	return identityIn(&st), nil
}

func identityIn(st *unix.Stat_t) identity { return identity{uint64(st.Dev), st.Ino} }

func (i identity) String() string {
	return fmt.Sprintf("device %d:%d, inode %d", unix.Major(i.device), unix.Minor(i.device), i.inode)
}

// at returns nil if a name in the folder of a descriptor leads to what was opened. It
// follows no link. The error names it as called.
func (i identity) at(folder int, name, called string) error {
	var st unix.Stat_t
	err := unix.Fstatat(folder, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	for errors.Is(err, unix.EINTR) { // some file systems give up at a signal
		err = unix.Fstatat(folder, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	switch found := identityIn(&st); {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%s: %w; %w", called, err, ErrReplaced)
	case err != nil:
		return fmt.Errorf("%s: %w", called, err)
	case found != i:
		return fmt.Errorf("%s leads to %s (%s; expected %s); %w", called, kind(st.Mode), found, i, ErrReplaced)
	default:
		return nil
	}
}

// kind names what has the place of a folder or file.
func kind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "another folder or file system"
	case unix.S_IFLNK:
		return "a symbolic link"
	default:
		return "another file"
	}
}
