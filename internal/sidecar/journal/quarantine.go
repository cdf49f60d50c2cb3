package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// maxQuarantineName leaves space for a number within the 255 bytes that file systems allow for a
// name.
const maxQuarantineName = 200

// Quarantined is one file in quarantine/.
type Quarantined struct {
	// Name is its name there.
	Name string
	// Reason is why it is unusable; empty for a file that Load has not read.
	Reason string
	// Since is when it was moved there; zero if the file system does not report it.
	Since time.Time
}

// Quarantined returns the files in quarantine/, by name, while the state directory is Available.
// Only an operator removes them.
func (j *Journal) Quarantined() ([]Quarantined, error) {
	if err := j.Available(); err != nil {
		return nil, err
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	entries, err := j.quarantine.entries()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // an operator has removed the directory
	}
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w", j.quarantine.Name(), files.WithoutPath(err, j.quarantine.Name()))
	}
	found := make([]Quarantined, len(entries))
	for i, e := range entries {
		found[i] = Quarantined{Name: e.Name(), Reason: j.reasons[e.Name()], Since: renameTime(e)}
	}
	return found, nil
}

// renameTime returns when an entry last got its name: a rename changes its inode.
func renameTime(e fs.DirEntry) time.Time {
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

// reloadReasons finds why the files that previous runs quarantined are unusable. A directory
// that cannot be read is reported by Quarantined.
func (j *Journal) reloadReasons() {
	clear(j.reasons)
	entries, err := j.quarantine.entries()
	if err != nil {
		return
	}
	for _, e := range entries {
		j.reasons[e.Name()] = "quarantined by a previous run; readable now"
		_, err := j.readRecord(j.quarantine, e.Name())
		if unreadable, ok := errors.AsType[*unreadableError](err); ok {
			err = fmt.Errorf("unreadable: %w", unreadable.cause)
		}
		if err != nil {
			j.reasons[e.Name()] = err.Error()
		}
	}
}

// moveToQuarantine moves an entry of attachments/, of any type, to an unused name in
// quarantine/, and returns that name once the entry has it. Quarantined returns reason with it.
func (j *Journal) moveToQuarantine(name, reason string) (string, error) {
	to, err := j.unusedName(name)
	if err != nil {
		return "", err
	}
	failpoint.Reach(failpoint.QuarantineMoving)
	if err := j.state.Rename(filepath.Join(attachmentsName, name), filepath.Join(quarantineName, to)); err != nil {
		return "", files.In(j.state.Root, err)
	}
	// The new name is synced first: after a crash the file may have both names, but not none.
	failpoint.Reach(failpoint.QuarantineMoved)
	j.reasons[to] = reason
	added := syncDir(j.quarantine)
	failpoint.Reach(failpoint.QuarantineArrived)
	removed := syncDir(j.attachments)
	failpoint.Reach(failpoint.QuarantineComplete)
	return to, errors.Join(added, removed)
}

// unusedName returns the name, with the first unused number if it is taken. It may be used only
// while the directory's lock excludes other processes.
func (j *Journal) unusedName(name string) (string, error) {
	base := name[:min(len(name), maxQuarantineName)]
	unused := base
	for n := 1; ; n++ {
		_, err := j.quarantine.lstat(unused)
		if errors.Is(err, fs.ErrNotExist) {
			return unused, nil
		}
		if err != nil {
			return "", err
		}
		unused = fmt.Sprintf("%s.%d", base, n)
	}
}
