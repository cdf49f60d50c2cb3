package unixsock

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// stagedName is the name of the socket in its staging directory.
const stagedName = "s"

// stagingDir is a directory beside the socket's path that only our own user can enter. The
// socket gets its group and mode there, before any client can connect.
type stagingDir struct {
	path string
	// target is the socket's path.
	target string
	dir    *os.File
}

// newStagingDir removes the staging directories of previous runs and creates a new one.
func newStagingDir(target string) (*stagingDir, error) {
	parent, prefix := filepath.Dir(target), stagingPrefix(target)
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return nil, fmt.Errorf("staging directory of a previous run: %w", err)
			}
		}
	}
	// os.MkdirTemp sets mode 0700.
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &stagingDir{path: path, target: target, dir: dir}, nil
}

// stagingPrefix returns the prefix of the staging directories of a socket. Sockets in the same
// directory have different ones, so that none removes the staging directory of another.
func stagingPrefix(target string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(filepath.Base(target)))
	return fmt.Sprintf(".socket-%08x-", h.Sum32())
}

// bind creates the socket in the staging directory. Its address names the descriptor of the
// directory, so that it is short even if the path is not.
func (s *stagingDir) bind(mode fs.FileMode, gid int) (*net.UnixListener, error) {
	name := fmt.Sprintf("/proc/self/fd/%d/%s", s.dir.Fd(), stagedName)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Lchown(s.socket(), -1, gid); err != nil {
		return nil, errors.Join(fmt.Errorf("its group cannot be set: %w", err), l.Close())
	}
	if err := os.Chmod(s.socket(), mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// install moves the socket to its path, where there must be the stale socket, or nothing if
// stale is nil. If another process has changed that, its file stays. It returns the installed
// socket.
func (s *stagingDir) install(stale fs.FileInfo) (fs.FileInfo, error) {
	installed, err := os.Lstat(s.socket())
	if err != nil {
		return nil, err
	}
	flags := uint(unix.RENAME_EXCHANGE)
	if stale == nil {
		flags = unix.RENAME_NOREPLACE
	}
	err = s.rename(flags)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// Some file systems have the plain rename only, which does not show what it replaces.
		return installed, os.Rename(s.socket(), s.target)
	}
	if err != nil || stale == nil {
		return installed, err
	}
	// The staging directory now has the file that was at the path.
	if found, err := os.Lstat(s.socket()); err == nil && os.SameFile(found, stale) {
		return installed, nil
	}
	return nil, errors.Join(errors.New("another process has created a file there; try again"), s.rename(unix.RENAME_EXCHANGE))
}

// rename is renameat2(2) from the staging directory to the path.
func (s *stagingDir) rename(flags uint) error {
	if err := unix.Renameat2(unix.AT_FDCWD, s.socket(), unix.AT_FDCWD, s.target, flags); err != nil {
		return fmt.Errorf("moving it to its path: %w", err)
	}
	return nil
}

func (s *stagingDir) socket() string { return filepath.Join(s.path, stagedName) }

// remove removes the staging directory. If it fails, the next Listen does.
func (s *stagingDir) remove() {
	_ = s.dir.Close()
	_ = os.RemoveAll(s.path)
}
