package nodenetwork

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/pkg/regularfile"
)

const (
	// fileMode of the output: any process of the node may read it.
	fileMode = 0o644
	// maxFile limits template and output, in bytes; a ConfigMap has at most 1 MiB.
	maxFile = 1 << 20
)

// output is the file that the sidecar reads.
type output string

// read returns its content, nil if there is none. A file that cannot be read, or is not one, counts as
// content that no template renders.
func (o output) read() []byte {
	content, err := regularfile.Read(string(o), maxFile)
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

// write replaces the file atomically: a reader sees the old content or all of the new one, whatever
// happens in between. Its directory must exist. The file is on a tmpfs, which no fsync makes durable;
// on another file system it is synced before it gets its name.
func (o output) write(content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(string(o)), filepath.Base(o.temporaryFiles()))
	if err != nil {
		return fmt.Errorf("%w; expected a directory of the node, mounted writable", err)
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

// remove removes the file; that there is none is not an error.
func (o output) remove() error {
	if err := os.Remove(string(o)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeTemporary removes the files that a killed process has left. A process that runs at the same
// time and loses its file fails to write, and repeats it.
func (o output) removeTemporary() {
	left, err := filepath.Glob(o.temporaryFiles())
	if err != nil {
		return // a path that is not a pattern; such files do no harm
	}
	for _, path := range left {
		_ = os.Remove(path)
	}
}
