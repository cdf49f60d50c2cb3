// Package files reads files that other users may have written or replaced, makes the errors of file
// systems readable, and reports the mount of a path.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// UnfitError describes a file that is not read: not a regular file, or too large.
type UnfitError string

func (e UnfitError) Error() string { return string(e) }

// Read returns the content of a regular file of at most limit bytes. It follows symbolic links,
// because a mounted ConfigMap consists of them. It does not block on a FIFO, and a larger file
// takes no more memory than limit. The errors do not contain the path; the caller adds it.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, Cause(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = checkRegular(info)
	}
	if err != nil {
		return nil, Cause(err)
	}
	data, err := readAll(f, limit)
	return data, Cause(err)
}

// OpenIn opens a regular file in root for reading. It follows no symbolic link, not even one that is
// planted between the check and the open, and does not block on a FIFO. Errors of the system are
// *fs.PathError with the full path; others describe the file and lack the path.
func OpenIn(root *os.Root, name string) (*os.File, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, In(root, err)
	}
	if err := checkRegular(info); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, In(root, err)
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(info, opened) {
		err = errors.New("replaced while it was read")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadIn returns the content of a regular file in root of at most limit bytes. Link, FIFO and errors
// are as with OpenIn.
func ReadIn(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := OpenIn(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, limit)
}

func checkRegular(info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return UnfitError(fmt.Sprintf("not a regular file (%s)", info.Mode().Type()))
	}
	return nil
}

func readAll(f *os.File, limit int64) ([]byte, error) {
	var data bytes.Buffer
	if info, err := f.Stat(); err == nil {
		data.Grow(int(min(info.Size(), limit)) + bytes.MinRead) // so that one read suffices
	}
	if _, err := data.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	}
	if int64(data.Len()) > limit {
		return nil, UnfitError(fmt.Sprintf("larger than %d bytes", limit))
	}
	return data.Bytes(), nil
}
