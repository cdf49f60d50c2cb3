package journal

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

const (
	// markerName is the file that distinguishes a state directory from others.
	markerName = "marker"
	// temporaryMarker is renamed to markerName.
	temporaryMarker = ".marker.new"
	// markerBytes is the number of random bytes in an ID.
	markerBytes = 8
)

// markerPattern is the content of a marker: the ID and a line feed.
var markerPattern = regexp.MustCompile(`^[0-9a-f]{16}\n$`)

// marker is the open marker of a state directory.
type marker struct {
	fileID
	file *os.File
	// id is random. It helps an operator to find the directory among several.
	id string
}

// errNoMarker: the marker is missing or malformed.
var errNoMarker = errors.New("no marker; expected a line of 16 hexadecimal digits")

// openMarker opens the marker of a state directory. A missing one (in a new directory, or one of
// an earlier build) or a malformed one is replaced: a start uses the directory that it finds, so
// the marker of the previous run has no meaning any more.
func openMarker(state *directory) (marker, error) {
	m, err := readMarker(state)
	if errors.Is(err, errNoMarker) {
		err = writeMarker(state)
		if err == nil {
			m, err = readMarker(state)
		}
	}
	if err != nil {
		return marker{}, fmt.Errorf("marker of the state directory: %w", files.WithRemedy(err, stateDirFlag))
	}
	return m, nil
}

// writeMarker gives a state directory a new marker.
func writeMarker(state *directory) error {
	failpoint.Reach(failpoint.LeftoverRemoving)
	err := state.Remove(temporaryMarker) // of a process that was killed before its rename
	failpoint.Reach(failpoint.LeftoverRemoved)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return files.In(state.Root, err)
	}
	id := make([]byte, markerBytes)
	_, _ = rand.Read(id) // never fails (crypto/rand)
	return replace(state, temporaryMarker, markerName, []byte(hex.EncodeToString(id)+"\n"))
}

// readMarker opens an existing marker. It does not follow a link.
func readMarker(state *directory) (marker, error) {
	info, err := state.lstat(markerName)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return marker{}, errNoMarker
	}
	if err != nil {
		return marker{}, err
	}
	file, err := state.open(markerName)
	if err != nil {
		return marker{}, err
	}
	m := marker{file: file}
	text, err := io.ReadAll(io.LimitReader(file, 4*markerBytes))
	if err == nil {
		m.fileID, err = fileIDOf(file)
	}
	if err == nil && !markerPattern.Match(text) {
		err = errNoMarker
	}
	if err != nil {
		return marker{}, errors.Join(err, file.Close())
	}
	m.id = strings.TrimSpace(string(text))
	return m, nil
}
