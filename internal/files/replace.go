package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// TemporaryFiles matches the files that Replace creates beside a path.
func TemporaryFiles(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
}

// Sync makes durable what was opened, of a directory its names, and closes it. err is that of the open.
func Sync(f *os.File, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Replace replaces a file atomically: a reader gets the complete old or the complete new content, even if
// the process is killed. The directory must exist. The content is synced before the rename.
func Replace(path string, content []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(TemporaryFiles(path)))
	if err != nil {
		return fmt.Errorf("%w; expected a writable directory of the host", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
