package unixsock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// bind creates the socket at a path, with its mode and group, and returns its description. Another user may be able to
// write to the directory, and to replace the socket at any time. So only root can use it before it has its group, and
// it gets group and mode by its descriptor. The lock of the state directory excludes another daemon.
func bind(path string, mode fs.FileMode, gid int) (*net.UnixListener, fs.FileInfo, error) {
	// The file of a socket gets the mode of its descriptor (Linux, unix_bind_bsd).
	withoutMode := func(_, _ string, c syscall.RawConn) (err error) {
		controlErr := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0) })
		return errors.Join(err, controlErr)
	}
	l, err := (&net.ListenConfig{Control: withoutMode}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, nil, fmt.Errorf("the socket cannot be created in %s: %w", filepath.Dir(path), files.Cause(err))
	}
	socket := l.(*net.UnixListener)
	socket.SetUnlinkOnClose(false)
	info, err := setAccess(path, mode, gid)
	if err != nil {
		return nil, nil, errors.Join(err, removeSocket(path, info), socket.Close())
	}
	return socket, info, nil
}

// setAccess sets group and mode of the socket that was created at a path, and returns its description; nil if another file
// is there.
func setAccess(path string, mode fs.FileMode, gid int) (fs.FileInfo, error) {
	file, err := os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, files.WithoutPath(err, path)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, files.WithoutPath(err, path)
	}
	uid, now := ownerOf(info)
	if info.Mode() != fs.ModeSocket || uid != os.Geteuid() {
		return nil, fmt.Errorf("mode %s, user %d: another process has replaced it, so restrict write access to %s", info.Mode(), uid, filepath.Dir(path))
	}
	if gid >= 0 && gid != now {
		if err := setGroup(int(file.Fd()), gid); err != nil {
			return info, err
		}
	}
	// fchmod(2) refuses such a descriptor.
	if err := os.Chmod(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), mode); err != nil {
		return info, fmt.Errorf("set mode %04o: %w", mode, files.Cause(err))
	}
	return info, nil
}

// setGroup gives the file of a descriptor a group.
func setGroup(fd, gid int) error {
	err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EPERM) {
		if err := checkMember(gid); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("set group %d (--socket-group): %w", gid, err)
	}
	return nil
}

// checkMember returns why this process may not give its file a group, with the remedy; nil if it may. Without CAP_CHOWN
// it may give it only a group of which it is a member (chown(2)).
func checkMember(gid int) error {
	groups, err := os.Getgroups()
	groups = append(groups, os.Getegid())
	if err == nil && slices.Contains(groups, gid) || hasCapChown() {
		return nil
	}
	slices.Sort(groups)
	return fmt.Errorf("set group %d (--socket-group): this process is not a member of that group (it has %v) and lacks CAP_CHOWN; "+
		"in Kubernetes add %[1]d to supplementalGroups in the pod's securityContext, or make it runAsGroup of the container; in a systemd unit name it in SupplementaryGroups=",
		gid, slices.Compact(groups))
}

// hasCapChown reports whether CAP_CHOWN is effective in the calling thread.
func hasCapChown() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_CHOWN) != 0
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

// removeSocket removes the socket at a path if it is still the given one; nothing for nil.
func removeSocket(path string, socket fs.FileInfo) error {
	if now, err := os.Lstat(path); err != nil || !os.SameFile(now, socket) {
		return nil // removed, or replaced by what is not ours
	}
	return files.WithoutPath(os.Remove(path), path)
}

// Remove removes the stale socket at a path, and returns the removed path. It succeeds without one. A socket
// on which a process listens, and a file that is not a socket, stay, and are an error.
func Remove(path string) (removed []string, err error) {
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
	stat := info.Sys().(*syscall.Stat_t)
	return int(stat.Uid), int(stat.Gid)
}

// socketError adds the path of the socket, and what to do about its directory.
func socketError(path string, err error) error {
	return fmt.Errorf("socket %s: %w", path, files.WithRemedy(err, "--socket-path"))
}
