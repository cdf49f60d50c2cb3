package nodenetwork

import (
	"errors"
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
	left, err := filepath.Glob(files.TemporaryFiles(string(o)))
	if err != nil {
		return // the path is not a valid pattern; the files are harmless
	}
	for _, path := range left {
		_ = os.Remove(path)
	}
}
