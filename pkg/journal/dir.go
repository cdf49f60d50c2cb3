package journal

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// dir is a descriptor of a folder for one change of it: os.Root has no exchange of
// two names and no fdatasync. It is opened before the change, so that its fsync
// reports every error since, also one that another fsync has reported already.
type dir struct {
	fd   int
	path string
}

// descriptor opens a folder once more. The caller shuts it.
func (f *folder) descriptor() (dir, error) {
	d := dir{path: f.Name()}
	err := again(func() (err error) {
		d.fd, err = unix.Openat(int(f.file.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	return d, pathError("open", d.path, err)
}

func (d dir) shut() { _ = unix.Close(d.fd) }

// create makes an empty file and opens it. The error is fs.ErrExist where the name
// is not free.
func (d dir) create(name string) (file, error) { return d.open(name, unix.O_CREAT|unix.O_EXCL) }

// open opens a file for writing. It follows no link and waits for nobody.
func (d dir) open(name string, flags int) (file, error) {
	f := file{name: name}
	err := again(func() (err error) {
		f.fd, err = unix.Openat(d.fd, name, flags|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, fileMode)
		return err
	})
	return f, pathError("open", name, err)
}

// look returns what has a name in the folder; fs.ErrNotExist where nothing has.
func (d dir) look(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := again(func() error { return unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, pathError("stat", name, err)
}

// rename gives a file another name in the folder, in the place of what has it.
func (d dir) rename(from, to string) error {
	err := again(func() error { return unix.Renameat(d.fd, from, d.fd, to) })
	return pathError("rename", to, err)
}

// exchange gives each of two files the name of the other one, both at once.
func (d dir) exchange(a, b string) error {
	err := again(func() error { return unix.Renameat2(d.fd, a, d.fd, b, unix.RENAME_EXCHANGE) })
	return pathError("exchange", b, err)
}

func (d dir) unlink(name string) error {
	return pathError("unlink", name, again(func() error { return unix.Unlinkat(d.fd, name, 0) }))
}

// sync makes the names in the folder durable.
func (d dir) sync() error {
	return pathError("fsync", d.path, again(func() error { return unix.Fsync(d.fd) }))
}

// file is an open file in such a folder.
type file struct {
	fd   int
	name string
}

func (f file) look() (unix.Stat_t, error) {
	var st unix.Stat_t
	err := again(func() error { return unix.Fstat(f.fd, &st) })
	return st, pathError("stat", f.name, err)
}

// write writes all of data over the beginning of the file.
func (f file) write(data []byte) error {
	for at := 0; at < len(data); {
		n, err := unix.Pwrite(f.fd, data[at:], int64(at))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return pathError("write", f.name, err)
		}
		at += max(n, 0)
	}
	return nil
}

// flush makes the file durable: all of it, or its data and what is needed to find
// them, which for one that only was overwritten is less.
func (f file) flush(overwritten bool) error {
	return pathError("fsync", f.name, again(func() error {
		if overwritten {
			return unix.Fdatasync(f.fd)
		}
		return unix.Fsync(f.fd)
	}))
}

func (f file) shut() error { return pathError("close", f.name, unix.Close(f.fd)) }

// again makes a call until no signal interrupts it: some file systems give up then.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// pathError says of a call's error what it was about; nil stays nil.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
