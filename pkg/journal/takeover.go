package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// errElsewhere: what we have open is not what the next start will find.
var errElsewhere = errors.New("the state folder, or a folder in it, is not the one that was opened any more")

// settle makes sure that what is written now will be found by the next start.
// The state folder may have been taken away: that is an error until one is there
// again, and none is made, because it may be a disk that is only not mounted.
// Another folder in its place, or one without its subfolders, is taken over.
func (j *Journal) settle() error {
	j.mu.RLock()
	err := j.inPlace()
	j.mu.RUnlock()
	if !errors.Is(err, errElsewhere) {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.inPlace(); !errors.Is(err, errElsewhere) {
		return err // somebody else has settled it meanwhile
	}
	return j.takeOver()
}

// inPlace tells whether each folder that we have open is still the one that its
// path leads to. It is asked before each write, so it asks no more than it must.
func (j *Journal) inPlace() error {
	named, err := os.Lstat(j.state.Name())
	if err != nil {
		return fmt.Errorf("state folder: %w; bring it back, or make an empty one: every record is written again then", err)
	}
	if !os.SameFile(j.state.opened, named) {
		return errElsewhere
	}
	if err := j.has(attachmentsName, j.attachments); err != nil {
		return err
	}
	return j.has(quarantineName, j.quarantine)
}

// has tells whether a folder is the one of that name in the state folder.
func (j *Journal) has(name string, f *folder) error {
	named, err := j.state.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return errElsewhere
	}
	if err != nil {
		return fmt.Errorf("state folder: %s: %w", filepath.Join(j.state.Name(), name), err)
	}
	if !os.SameFile(f.opened, named) {
		return errElsewhere
	}
	return nil
}

// takeOver locks the folder that is there now, writes every record into it and
// goes on with it; mu is held. Nothing has changed for us after an error.
func (j *Journal) takeOver() error {
	state, err := enterState(j.state.Name())
	if err != nil {
		return err
	}
	next, err := openIn(state, j.machineID)
	if err != nil {
		return err
	}
	next.recallReasons()
	if err := next.moveIn(j); err != nil {
		return errors.Join(fmt.Errorf("state folder %s is not the one that was opened, and cannot be taken over: %w", state.Name(), err), next.Close())
	}
	if next.lock == nil {
		next.lock, j.lock = j.lock, nil
	}
	_ = j.Close() // what it had open is of no use to anybody any more
	j.state, j.attachments, j.quarantine, j.lock = next.state, next.attachments, next.quarantine, next.lock
	j.spares, j.reasons = next.spares, next.reasons
	return nil
}

// moveIn makes a newly opened folder hold what the journal before it held, and
// no other records: they would come to life at the next start, although they
// have been released since, or are somebody else's.
func (j *Journal) moveIn(before *Journal) (err error) {
	if j.lock, err = lockAgain(j.state, before.state); err != nil {
		return err
	}
	entries, err := fs.ReadDir(j.attachments.FS(), ".")
	if err != nil {
		return err
	}
	known := before.known.all()
	for _, e := range entries {
		id := containerIDOf(e.Name())
		if _, ours := known[id]; ours || before.newer[id] || leftover.MatchString(e.Name()) {
			continue
		}
		if _, err := j.moveToQuarantine(e.Name(), "it was in a folder that took the place of the state folder"); err != nil {
			return err
		}
	}
	for _, r := range known {
		data, err := j.encode(r)
		if err == nil {
			err = j.replace(r.ContainerID+suffix, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lockAgain takes the lock of a folder for this process; nil if it is the folder
// that this process has locked already, with its lock file still in it.
func lockAgain(state, before *folder) (*os.File, error) {
	if _, err := state.Lstat(lockName); err == nil && os.SameFile(before.opened, state.opened) {
		return nil, nil
	}
	lock, err := tryLock(state)
	if err == nil {
		sayHolder(lock)
	}
	return lock, err
}
