package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
)

// maxQuarantineName leaves room for a number within the 255 bytes that file
// systems allow for a name.
const maxQuarantineName = 200

// Quarantined is one file in quarantine/.
type Quarantined struct {
	// Name is its name there.
	Name string
	// Reason says what is wrong with it; empty of a file that Load has not seen.
	Reason string
	// Since is when it came there; zero where the file system does not say.
	Since time.Time
}

// Quarantined returns the files in quarantine/, by name: those of the state folder that was
// opened, while it is Available. They are never removed by us: a person decides.
func (j *Journal) Quarantined() ([]Quarantined, error) {
	if err := j.Available(); err != nil {
		return nil, fmt.Errorf("journal: read %s: %w", j.quarantine.Name(), err)
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	entries, err := fs.ReadDir(j.quarantine.FS(), ".")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a person has removed the folder
	}
	if err != nil {
		return nil, fmt.Errorf("journal: read %s: %w", j.quarantine.Name(), err)
	}
	found := make([]Quarantined, len(entries))
	for i, e := range entries {
		found[i] = Quarantined{Name: e.Name(), Reason: j.reasons[e.Name()], Since: renamed(e)}
	}
	return found, nil
}

// renamed is when an entry last got its name, which is what a rename leaves as
// the change of its inode.
func renamed(e fs.DirEntry) time.Time {
	info, err := e.Info()
	if err != nil {
		return time.Time{}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return time.Time{}
	}
	return time.Unix(stat.Ctim.Unix())
}

// recallReasons finds out what is wrong with the files that an earlier life of the
// process has put aside. A folder that cannot be read is Quarantined's to report.
func (j *Journal) recallReasons() {
	clear(j.reasons)
	entries, err := fs.ReadDir(j.quarantine.FS(), ".")
	if err != nil {
		return
	}
	for _, e := range entries {
		j.reasons[e.Name()] = "an earlier life of the process put it aside; its content can be read now"
		if err := j.wrongWith(e.Name()); err != nil {
			j.reasons[e.Name()] = err.Error()
		}
	}
}

// wrongWith is what is wrong with the content of a file in quarantine/.
func (j *Journal) wrongWith(name string) error {
	data, err := readIn(j.quarantine, name)
	if unseen, ok := errors.AsType[*unseenError](err); ok {
		return fmt.Errorf("it cannot be looked at: %w", unseen.cause)
	}
	if err != nil {
		return err
	}
	r, err := decode(data)
	if err != nil {
		return err
	}
	return j.here(r)
}

// moveToQuarantine takes an entry of attachments/ out of the way, whatever it is,
// under a name that nothing has yet. It returns the new name once the entry has it.
// why is what Quarantined says of it.
func (j *Journal) moveToQuarantine(name, why string) (string, error) {
	free, err := j.freeName(name)
	if err != nil {
		return "", err
	}
	failpoint.Reach(failpoint.QuarantineMoving)
	if err := j.state.Rename(filepath.Join(attachmentsName, name), filepath.Join(quarantineName, free)); err != nil {
		return "", err
	}
	// The new name before the loss of the old one: a crash between may show the
	// file twice, never not at all.
	failpoint.Reach(failpoint.QuarantineMoved)
	j.reasons[free] = why
	arrived := syncFolder(j.quarantine)
	failpoint.Reach(failpoint.QuarantineArrived)
	left := syncFolder(j.attachments)
	failpoint.Reach(failpoint.QuarantineComplete)
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
