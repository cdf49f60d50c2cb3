package journal

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
)

const (
	// markerName is the file that tells a state folder from others.
	markerName = "marker"
	// temporaryMarker is not yet a marker.
	temporaryMarker = ".marker.new"
	// markerBytes is how many random bytes an ID has.
	markerBytes = 8
)

// markerText is the content of a marker: the ID and a line feed.
var markerText = regexp.MustCompile(`^[0-9a-f]{16}\n$`)

// marker is the open marker of a state folder.
type marker struct {
	identity
	file *os.File
	// id is random. It helps a person to find the folder among several.
	id string
}

// errNoMarker: the marker is missing or malformed.
var errNoMarker = errors.New("no marker; expected a line of 16 hexadecimal digits")

// openMarker opens the marker of a state folder. One that is missing (a new folder, or one of
// an earlier build) or malformed is written anew: a start uses the folder that it finds, so
// the marker of the run before has no meaning any more.
func openMarker(state *folder) (marker, error) {
	m, err := readMarker(state)
	if errors.Is(err, errNoMarker) {
		err = writeMarker(state)
		if err == nil {
			m, err = readMarker(state)
		}
	}
	if err != nil {
		return marker{}, fmt.Errorf("state folder: %s: %w", filepath.Join(state.Name(), markerName), err)
	}
	return m, nil
}

// writeMarker gives a state folder a new marker.
func writeMarker(state *folder) error {
	failpoint.Reach(failpoint.LeftoverRemoving)
	err := state.Remove(temporaryMarker) // of a process that was killed before its rename
	failpoint.Reach(failpoint.LeftoverRemoved)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	id := make([]byte, markerBytes)
	_, _ = rand.Read(id) // never fails (crypto/rand)
	return replace(state, temporaryMarker, markerName, []byte(hex.EncodeToString(id)+"\n"))
}

// readMarker opens the marker that is there. It follows no link.
func readMarker(state *folder) (marker, error) {
	seen, err := state.Lstat(markerName)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !seen.Mode().IsRegular() {
		return marker{}, errNoMarker
	}
	if err != nil {
		return marker{}, err
	}
	file, err := state.OpenFile(markerName, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return marker{}, err
	}
	m := marker{file: file}
	text, err := io.ReadAll(io.LimitReader(file, 4*markerBytes))
	if err == nil {
		m.identity, err = identityOf(file)
	}
	if err == nil && !markerText.Match(text) {
		err = errNoMarker
	}
	if err != nil {
		return marker{}, errors.Join(err, file.Close())
	}
	m.id = strings.TrimSpace(string(text))
	return m, nil
}
