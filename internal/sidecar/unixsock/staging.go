package unixsock

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// stagedName is the name of the socket in its staging directory.
const stagedName = "s"

// stagingDir is a directory next to the socket's path that only our own user can enter. The
// socket gets its group and mode there, before any client can connect.
type stagingDir struct {
	// target is the socket's path.
	target location
	dir    *os.File
}

// newStagingDir removes the staging directories of previous runs and creates a new one.
func newStagingDir(target location) (*stagingDir, error) {
	prefix := stagingPrefix(target.name)
	entries, err := entriesOf(target.dir)
	if err != nil {
		return nil, withRemedy(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			removeStaging(target.dir, e.Name())
		}
	}
	name := prefix + rand.Text()
	if err := unix.Mkdirat(int(target.dir.Fd()), name, 0o700); err != nil {
		return nil, withRemedy(fmt.Errorf("a staging directory cannot be created in %s: %w", target.dir.Name(), err))
	}
	dir, err := openDir(target.dir, name)
	if err != nil {
		return nil, fmt.Errorf("staging directory: %w", err)
	}
	if err := checkPrivate(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("staging directory: %w", err), dir.Close())
	}
	return &stagingDir{target: target, dir: dir}, nil
}

// stagingPrefix returns the prefix of the staging directories of a socket. Sockets in the same
// directory have different ones, so that none removes the staging directory of another.
func stagingPrefix(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf(".socket-%08x-", h.Sum32())
}

// removeStaging removes the staging directory of a previous run. A directory at its name that is not
// ours, or has other files, stays. Errors are ignored, because each run has a new name.
func removeStaging(parent *os.File, name string) {
	dir, err := openDir(parent, name)
	if err != nil {
		return
	}
	defer dir.Close()
	if checkPrivate(dir) != nil {
		return
	}
	s := stagingDir{dir: dir}
	if f, err := openName(dir, stagedName); err == nil {
		if isSocket(f) {
			s.unlink()
		}
		_ = f.Close()
	}
	_ = unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
}

// unlink removes the socket, or what install has put into its place.
func (s *stagingDir) unlink() { _ = unix.Unlinkat(int(s.dir.Fd()), stagedName, 0) }

// bind creates the socket in the staging directory. Its address names the descriptor of the
// directory, so that it is short even if the path is not. It returns the socket's description, too.
func (s *stagingDir) bind(mode fs.FileMode, gid int) (*net.UnixListener, fs.FileInfo, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: pathOf(s.dir) + "/" + stagedName, Net: "unix"})
	if err != nil {
		return nil, nil, withRemedy(fmt.Errorf("bind in staging directory %s: %w", s.dir.Name(), files.Cause(err)))
	}
	l.SetUnlinkOnClose(false)
	info, err := s.restrict(mode, gid)
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l, info, nil
}

// restrict sets the group and the mode of the socket and returns it.
func (s *stagingDir) restrict(mode fs.FileMode, gid int) (fs.FileInfo, error) {
	socket, err := openName(s.dir, stagedName)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	if !isSocket(socket) {
		return nil, fmt.Errorf("%s: not a socket; another process has replaced it", socket.Name())
	}
	if err := setGroup(socket, gid); err != nil {
		return nil, err
	}
	// fchmod(2) refuses a descriptor that was opened with O_PATH, and only such a one is possible
	// for a socket.
	if err := os.Chmod(pathOf(socket), mode); err != nil {
		return nil, withRemedy(fmt.Errorf("set mode %04o: %w", mode, files.Cause(err)))
	}
	return socket.Stat()
}

// install moves the socket to its path, where there must be the stale socket, or nothing if
// stale is nil. If another process has changed that, its file stays.
func (s *stagingDir) install(stale *os.File) error {
	if stale == nil {
		return s.rename(unix.RENAME_NOREPLACE)
	}
	if err := s.rename(unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	// The staging directory now has the file that was at the path, if the file system can exchange.
	found, err := openName(s.dir, stagedName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer found.Close()
		if sameFile(found, stale) {
			return nil
		}
	}
	return errors.Join(err, errors.New("another process has created a file there; try again"), s.rename(unix.RENAME_EXCHANGE))
}

// rename moves the socket from the staging directory to the path: with the flags of renameat2(2)
// or, on a file system without flags, in place of any file there.
func (s *stagingDir) rename(flags uint) error {
	from, to := int(s.dir.Fd()), int(s.target.dir.Fd())
	err := unix.Renameat2(from, stagedName, to, s.target.name, flags)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = unix.Renameat(from, stagedName, to, s.target.name)
	}
	if err != nil {
		return withRemedy(fmt.Errorf("move to its path: %w", err))
	}
	return nil
}

// remove removes the staging directory. If it fails, the next Listen does.
func (s *stagingDir) remove() {
	s.unlink()
	_ = unix.Unlinkat(int(s.target.dir.Fd()), filepath.Base(s.dir.Name()), unix.AT_REMOVEDIR)
	_ = s.dir.Close()
}
