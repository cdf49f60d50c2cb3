package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// In returns the error of a method of root with the full path, where it has the name of an entry,
// and with the usual name of the call: "open", not "openat".
func In(root *os.Root, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: strings.TrimSuffix(e.Op, "at"), Path: filepath.Join(root.Name(), e.Path), Err: e.Err}
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return &os.LinkError{Op: strings.TrimSuffix(e.Op, "at"), Old: filepath.Join(root.Name(), e.Old), New: filepath.Join(root.Name(), e.New), Err: e.Err}
	}
	return err
}

// AtPath returns an error about an entry of root as "path: cause", without the call.
func AtPath(root *os.Root, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", filepath.Join(root.Name(), name), Cause(err))
}

// WithoutPath removes path from the error of a system call; the caller adds it. Any other error is
// returned unchanged.
func WithoutPath(err error, path string) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok && filepath.Clean(e.Path) == filepath.Clean(path) {
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	}
	return err
}

// Cause returns the error of the kernel in the error of a system call, without call and path.
func Cause(err error) error {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// WithRemedy adds to an error what to do about it, if the user of a directory can do something. flag
// is the option that names the directory.
func WithRemedy(err error, flag string) error {
	another := fmt.Sprintf("configure another directory (%s)", flag)
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w; mount its file system writable, or %s", err, another)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; give user %d the permission, or %s", err, os.Geteuid(), another)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w; free space on its file system", err)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return fmt.Errorf("%w; %s", err, another)
	}
	return err
}
