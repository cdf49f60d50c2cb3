package unixsock

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// location is the place of the socket: its open directory and its name in it.
type location struct {
	dir  *os.File
	name string
}

// openLocation opens the directory of a path. A missing one is created; one that belongs to another
// user is an error.
func openLocation(path string) (location, error) {
	parent := filepath.Dir(path)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return location{}, withRemedy(err)
	}
	dir, err := os.OpenFile(parent, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return location{}, withRemedy(err)
	}
	if err := checkParentOwner(dir); err != nil {
		return location{}, errors.Join(err, dir.Close())
	}
	return location{dir, filepath.Base(path)}, nil
}

// withRemedy adds to an error of the directory of the socket what to do about it.
func withRemedy(err error) error { return files.WithRemedy(err, "--socket-path") }

// path returns the path of the socket.
func (l location) path() string { return filepath.Join(l.dir.Name(), l.name) }

// findStale opens the stale socket; nil without a file. It returns an error for a live socket
// or another file, which must stay. The error lacks the path of the socket.
func (l location) findStale() (*os.File, error) {
	f, err := openName(l.dir, l.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, withRemedy(files.WithoutPath(err, l.path()))
	}
	if err := checkStale(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkStale returns an error unless an open file is a socket on which no process listens.
func checkStale(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("not a socket (%s); remove it or choose another path (--socket-path)", info.Mode())
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: pathOf(f), Net: "unix"})
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("a socket exists, and it is unknown whether a process listens on it: %w", files.Cause(err))
	}
	defer conn.Close()
	process := "another process"
	if peer, err := PeerOf(conn); err == nil {
		process = fmt.Sprintf("the process with PID %d (user %d)", peer.PID, peer.UID)
	}
	return fmt.Errorf("%s already listens on it; stop it or choose another path (--socket-path)", process)
}

// remove removes the socket if it is still the installed one.
func (l location) remove(installed fs.FileInfo) error {
	f, err := openName(l.dir, l.name)
	if err != nil {
		return nil // removed, or replaced by what is not ours
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(now, installed) {
		return nil
	}
	if err := unix.Unlinkat(int(l.dir.Fd()), l.name, 0); err != nil {
		return &fs.PathError{Op: "unlink", Path: l.path(), Err: err}
	}
	return nil
}

// checkParentOwner returns an error if an open directory belongs to another user, who could replace
// the socket and allocate addresses to our clients. Root, who can do that anywhere, is allowed.
func checkParentOwner(dir *os.File) error {
	info, err := dir.Stat()
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
	if info.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	const expected = "expected a directory that only its owner can write to"
	_, gid := ownerOf(info)
	switch name, mode := filepath.Base(path), info.Mode(); {
	case mode.Perm()&0o002 != 0:
		return fmt.Errorf("directory %s is world-writable (mode %s), so any user can replace the socket %s; %s", dir, mode, name, expected)
	case mode.Perm()&0o020 != 0:
		return fmt.Errorf("directory %s is group-writable (mode %s), so each member of group %d can replace the socket %s; %s",
			dir, mode, gid, name, expected)
	}
	return nil
}

// ownerOf returns the IDs of the user and the group of a file.
func ownerOf(info fs.FileInfo) (uid, gid int) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(stat.Uid), int(stat.Gid)
}
