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

// socketName is the socket's name as long as it is in its room.
const socketName = "s"

// room is a folder beside the socket's path that only we can enter, in which
// the socket is made ready. Nobody can connect before its mode is set.
type room struct {
	path string
	// target is the socket's path.
	target string
	folder *os.File
}

// newRoom makes the room, after removing those of earlier lives.
func newRoom(target string) (*room, error) {
	parent, prefix := filepath.Dir(target), roomPrefix(target)
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return nil, fmt.Errorf("left-over of an earlier life: %w", err)
			}
		}
	}
	// os.MkdirTemp makes it with mode 0700.
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	folder, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &room{path: path, target: target, folder: folder}, nil
}

// roomPrefix begins the names of the rooms of one socket. Sockets that share a
// folder have different ones, else one would remove what another is about to use.
func roomPrefix(target string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(filepath.Base(target)))
	return fmt.Sprintf(".socket-%08x-", h.Sum32())
}

// bind makes the socket in the room. The address goes through the room's
// descriptor, so that it is short however long the path is.
func (r *room) bind(mode fs.FileMode, gid int) (*net.UnixListener, error) {
	name := fmt.Sprintf("/proc/self/fd/%d/%s", r.folder.Fd(), socketName)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Lchown(r.socket(), -1, gid); err != nil {
		return nil, errors.Join(fmt.Errorf("its group cannot be set: %w", err), l.Close())
	}
	if err := os.Chmod(r.socket(), mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// place moves the socket to its path, in the place of a stale one or of nothing.
// Should another process have been there since we looked, what it put there stays.
func (r *room) place(stale fs.FileInfo) (fs.FileInfo, error) {
	ours, err := os.Lstat(r.socket())
	if err != nil {
		return nil, err
	}
	how := uint(unix.RENAME_EXCHANGE)
	if stale == nil {
		how = unix.RENAME_NOREPLACE
	}
	err = r.move(how)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// Some file systems only know the plain rename, which cannot tell whom it replaces.
		return ours, os.Rename(r.socket(), r.target)
	}
	if err != nil || stale == nil {
		return ours, err
	}
	// The room now has what was at the path.
	if found, err := os.Lstat(r.socket()); err == nil && os.SameFile(found, stale) {
		return ours, nil
	}
	return nil, errors.Join(errors.New("another process put something there meanwhile; try again"), r.move(unix.RENAME_EXCHANGE))
}

// move is renameat2(2) from the room to the path.
func (r *room) move(how uint) error {
	if err := unix.Renameat2(unix.AT_FDCWD, r.socket(), unix.AT_FDCWD, r.target, how); err != nil {
		return fmt.Errorf("moving it to its path: %w", err)
	}
	return nil
}

func (r *room) socket() string { return filepath.Join(r.path, socketName) }

// remove leaves nothing behind that the next Listen would not remove.
func (r *room) remove() {
	_ = r.folder.Close()
	_ = os.RemoveAll(r.path)
}
