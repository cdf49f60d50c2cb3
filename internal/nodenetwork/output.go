package nodenetwork

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

const (
	// fileMode of the output: any process of the node may read it.
	fileMode = 0o644
	// maxFile limits template and output, in bytes; a ConfigMap has at most 1 MiB.
	maxFile = 1 << 20
)

// output is the file that the sidecar reads.
type output string

// read returns the content of the file, nil if it does not exist. For an unreadable file or a
// directory it returns empty content, which differs from any rendered one.
func (o output) read() []byte {
	content, err := files.Read(string(o), maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return []byte{}
	}
	return content
}

// temporaryFiles matches the files that write creates.
func (o output) temporaryFiles() string {
	return filepath.Join(filepath.Dir(string(o)), "."+filepath.Base(string(o))+".*.tmp")
}

// write replaces the file atomically: a reader gets the complete old or the complete new content, even
// if the process is killed. The directory must exist. The content is synced before the rename, because
// the file system need not be a tmpfs.
func (o output) write(content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(string(o)), filepath.Base(o.temporaryFiles()))
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
		err = errors.Join(f.Chmod(fileMode), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), string(o))
}

// remove removes the file. A missing file is not an error.
func (o output) remove() error {
	if err := os.Remove(string(o)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeTemporary removes the temporary files of killed processes. A concurrent process whose file is
// removed fails to write, and retries.
func (o output) removeTemporary() {
	left, err := filepath.Glob(o.temporaryFiles())
	if err != nil {
		return // the path is not a valid pattern; the files are harmless
	}
	for _, path := range left {
		_ = os.Remove(path)
	}
}
