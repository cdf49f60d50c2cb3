package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/pkg/killpoint"
)

// maxQuarantineName leaves room for a number within the 255 bytes that file
// systems allow for a name.
const maxQuarantineName = 200

// Quarantined returns the names of what lies in quarantine/, sorted. Nothing
// there is ever read or removed by us: a person decides.
func (j *Journal) Quarantined() ([]string, error) {
	entries, err := fs.ReadDir(j.quarantine.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("journal: read %s: %w", j.quarantine.Name(), err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// moveToQuarantine takes an entry of attachments/ out of the way, whatever it is,
// under a name that nothing has yet. It returns the new name once the entry has it.
func (j *Journal) moveToQuarantine(name string) (string, error) {
	free, err := j.freeName(name)
	if err != nil {
		return "", err
	}
	killpoint.Reach(killpoint.QuarantineMoving)
	if err := j.state.Rename(filepath.Join(attachmentsName, name), filepath.Join(quarantineName, free)); err != nil {
		return "", err
	}
	// The new name before the loss of the old one: a crash between may show the
	// file twice, never not at all.
	killpoint.Reach(killpoint.QuarantineMoved)
	arrived := syncFolder(j.quarantine)
	killpoint.Reach(killpoint.QuarantineArrived)
	left := syncFolder(j.attachments)
	killpoint.Reach(killpoint.QuarantineComplete)
	return free, errors.Join(arrived, left)
}

// freeName is the name itself, or with the first free number. The look and the
// rename are two steps; the folder's lock keeps other processes out between them.
func (j *Journal) freeName(name string) (string, error) {
	base := name[:min(len(name), maxQuarantineName)]
	free := base
	for n := 1; ; n++ {
		_, err := j.quarantine.Lstat(free)
		if errors.Is(err, fs.ErrNotExist) {
			return free, nil
		}
		if err != nil {
			return "", err
		}
		free = fmt.Sprintf("%s.%d", base, n)
	}
}
