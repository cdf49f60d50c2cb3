package unixsock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// Another user may be able to write to the directory of the socket and to replace any name in it at
// any time. So each name is opened once, and everything else uses the descriptor.

// openDir opens a directory, which is not a symbolic link, by its name in another one.
func openDir(parent *os.File, name string) (*os.File, error) {
	return openAt(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
}

// openName opens the file of a name in a directory, without any right to its content. The descriptor
// of a symbolic link refers to the link, not to its target.
func openName(parent *os.File, name string) (*os.File, error) {
	return openAt(parent, name, unix.O_PATH|unix.O_NOFOLLOW)
}

func openAt(parent *os.File, name string, flags int) (*os.File, error) {
	path := filepath.Join(parent.Name(), name)
	for {
		fd, err := unix.Openat(int(parent.Fd()), name, flags|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// pathOf returns a path of an open file, which names that file even if its name is replaced.
func pathOf(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// entriesOf returns the entries of an open directory.
func entriesOf(dir *os.File) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(pathOf(dir))
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: dir.Name(), Err: files.Cause(err)}
	}
	return entries, nil
}

// checkPrivate returns an error unless an open directory belongs to our own user, and no other user
// can enter it.
func checkPrivate(dir *os.File) error {
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if uid, _ := ownerOf(info); uid != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s: mode %s, not a private directory of user %d; another process has replaced it, so restrict write access to %s",
			dir.Name(), info.Mode(), os.Geteuid(), filepath.Dir(dir.Name()))
	}
	return nil
}

// isSocket reports whether an open file is a socket.
func isSocket(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// sameFile reports whether both descriptors are open and are of the same file.
func sameFile(a, b *os.File) bool {
	first, err := a.Stat()
	if err != nil {
		return false
	}
	second, err := b.Stat()
	return err == nil && os.SameFile(first, second)
}
