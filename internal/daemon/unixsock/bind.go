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
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// Another user may be able to write to the directory of the socket, and to replace any name in it at any time. So the
// socket gets its group and mode in a staging directory beside it, which only our own user can enter and which is
// accessed by its descriptor; a rename then gives it its name. The lock of the state directory excludes another daemon.

// stagedName is the name of the socket in its staging directory.
const stagedName = "s"

// bind creates the socket at a path, with its mode and group, and returns its description. A stale socket is replaced.
func bind(path string, mode fs.FileMode, gid int) (*net.UnixListener, fs.FileInfo, error) {
	staging, err := newStaging(path)
	if err != nil {
		return nil, nil, err
	}
	defer removeStaging(staging)
	return bindIn(staging, path, mode, gid)
}

// bindIn is bind in a staging directory.
func bindIn(staging *os.File, path string, mode fs.FileMode, gid int) (*net.UnixListener, fs.FileInfo, error) {
	staged := stagedIn(staging)
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: staged, Net: "unix"})
	if err != nil {
		return nil, nil, fmt.Errorf("bind in staging directory %s: %w", staging.Name(), files.Cause(err))
	}
	socket.SetUnlinkOnClose(false)
	err = setGroup(staged, gid)
	if err == nil {
		if err = os.Chmod(staged, mode); err != nil {
			err = fmt.Errorf("set mode %04o: %w", mode, files.Cause(err))
		}
	}
	var info fs.FileInfo
	if err == nil {
		info, err = os.Lstat(staged)
	}
	if err == nil {
		if err = unix.Renameat2(unix.AT_FDCWD, staged, unix.AT_FDCWD, path, 0); err != nil {
			err = fmt.Errorf("move to its path: %w", files.Cause(err))
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, socket.Close())
	}
	return socket, info, nil
}

// stagedIn returns the path of the socket in a staging directory: that of the descriptor, because another directory may
// have its name by now.
func stagedIn(staging *os.File) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", staging.Fd(), stagedName)
}

// newStaging removes the staging directories of previous runs, creates one and opens it.
func newStaging(path string) (*os.File, error) {
	removeOldStaging(path)
	name := stagingPrefix(path) + rand.Text()
	if err := os.Mkdir(name, 0o700); err != nil {
		return nil, fmt.Errorf("a staging directory cannot be created in %s: %w", filepath.Dir(path), files.Cause(err))
	}
	return openStaging(name)
}

// stagingPrefix returns the prefix of the paths of a socket's staging directories. Sockets in the same
// directory have different ones, so that none removes the staging directory of another.
func stagingPrefix(path string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(filepath.Base(path)))
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".socket-%08x-", h.Sum32()))
}

// openStaging opens a staging directory, unless another user can enter it, or it is a link.
func openStaging(path string) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("staging directory: %w", err)
	}
	info, err := dir.Stat()
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	if uid, _ := ownerOf(info); uid != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		_ = dir.Close()
		return nil, fmt.Errorf("staging directory %s: mode %s, not a private directory of user %d; another process has replaced it, so restrict write access to %s",
			path, info.Mode(), os.Geteuid(), filepath.Dir(path))
	}
	return dir, nil
}

// removeStaging removes a staging directory and closes it. One with other files than a socket stays. Errors are ignored,
// because each run has a new name.
func removeStaging(dir *os.File) {
	if info, err := os.Lstat(stagedIn(dir)); err == nil && info.Mode().Type() == fs.ModeSocket {
		_ = os.Remove(stagedIn(dir))
	}
	_ = unix.Rmdir(dir.Name())
	_ = dir.Close()
}

// removeOldStaging removes the staging directories of a socket's previous runs.
func removeOldStaging(path string) {
	entries, _ := os.ReadDir(filepath.Dir(path))
	for _, e := range entries {
		if name := filepath.Join(filepath.Dir(path), e.Name()); strings.HasPrefix(name, stagingPrefix(path)) {
			if dir, err := openStaging(name); err == nil {
				removeStaging(dir)
			}
		}
	}
}

// findStale returns the stale socket at a path, on which no process listens; nil without a file. It returns an error for
// a live socket or another file, which must stay.
func findStale(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, files.WithoutPath(err, path)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("not a socket (%s); remove it or choose another path (--socket-path)", info.Mode())
	}
	conn, err := net.Dial("unix", path)
	if errors.Is(err, unix.ECONNREFUSED) {
		return info, nil
	}
	if err != nil {
		return nil, fmt.Errorf("a socket exists, and it is unknown whether a process listens on it: %w", files.Cause(err))
	}
	defer conn.Close()
	process := "another process"
	if peer, err := PeerOf(conn); err == nil {
		process = fmt.Sprintf("the process with PID %d (user %d)", peer.PID, peer.UID)
	}
	return nil, fmt.Errorf("%s already listens on it; stop it or choose another path (--socket-path)", process)
}

// removeSocket removes the socket at a path if it is still the given one.
func removeSocket(path string, socket fs.FileInfo) error {
	if now, err := os.Lstat(path); err != nil || !os.SameFile(now, socket) {
		return nil // removed, or replaced by what is not ours
	}
	return files.WithoutPath(os.Remove(path), path)
}

// Remove removes the stale socket at a path and the staging directories of its daemon, and returns
// the removed path. It succeeds without them. A socket on which a process listens, and a file that
// is not a socket, stay, and are an error.
func Remove(path string) (removed []string, err error) {
	removeOldStaging(path)
	stale, err := findStale(path)
	if err == nil && stale != nil {
		removed, err = []string{path}, removeSocket(path, stale)
	}
	if err != nil {
		return nil, socketError(path, err)
	}
	return removed, nil
}

// checkParentOwner returns an error if the directory of a socket belongs to another user, who could replace
// the socket and allocate addresses to our clients. Root, who can do that anywhere, is allowed.
func checkParentOwner(path string) error {
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	if uid, _ := ownerOf(info); uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("the directory belongs to user %d; expected root or user %d, so change the owner or choose another directory (--socket-path)",
			uid, os.Geteuid())
	}
	return nil
}

// CheckParentMode returns an error if other users than its owner may write to the directory of a
// socket, and it is not sticky: they could replace the socket. This is a reason for a warning and
// not for a failure, because the emptyDir of a Kubernetes pod is such a directory, which only the
// containers of the pod see.
func CheckParentMode(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	writers, perm := "group", info.Mode().Perm()
	if perm&0o002 != 0 {
		writers = "world"
	}
	if perm&0o022 == 0 || info.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	_, gid := ownerOf(info)
	return fmt.Errorf("directory %s is %s-writable (mode %s, group %d), so other users can replace the socket %s; expected a directory that only its owner can write to",
		dir, writers, info.Mode(), gid, filepath.Base(path))
}

// ownerOf returns the IDs of the user and the group of a file.
func ownerOf(info fs.FileInfo) (uid, gid int) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(stat.Uid), int(stat.Gid)
}

// socketError adds the path of the socket, and what to do about its directory.
func socketError(path string, err error) error {
	return fmt.Errorf("socket %s: %w", path, files.WithRemedy(err, "--socket-path"))
}
