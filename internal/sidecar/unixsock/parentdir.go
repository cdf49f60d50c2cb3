package unixsock

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// checkParentOwner returns an error if an open directory belongs to another user, who could replace
// the socket and allocate addresses to our clients. Root, who can do that anywhere, is allowed.
func checkParentOwner(dir *os.File) error {
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("the directory belongs to user %d; expected root or user %d, so change the owner or choose another directory (--socket-path)",
			stat.Uid, os.Geteuid())
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
	switch name, mode := filepath.Base(path), info.Mode(); {
	case mode.Perm()&0o002 != 0:
		return fmt.Errorf("directory %s is world-writable (mode %s), so any user can replace the socket %s; %s", dir, mode, name, expected)
	case mode.Perm()&0o020 != 0:
		return fmt.Errorf("directory %s is group-writable (mode %s), so each member of group %d can replace the socket %s; %s",
			dir, mode, groupOf(info), name, expected)
	}
	return nil
}

// groupOf returns the ID of the group of a file.
func groupOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Gid)
	}
	return -1
}
