package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// leftover is how files that are not yet a record are named, here and by earlier
// programs. No container ID begins with a dot, so that it can never be the name of a
// record.
var leftover = regexp.MustCompile(`^\..*\.json[0-9]+$`)

// Loaded is what Load found.
type Loaded struct {
	// Records are the readable ones, by container ID.
	Records []record.Record
	// Problems are the files that could not be used, by name.
	Problems []Problem
	// FutureVersions are the files of a newer version, by name. They stay where they are;
	// their owners must not be served, because what they hold is not known.
	FutureVersions []FutureVersion
}

// Problem is a file in attachments/ that is no record of ours.
type Problem struct {
	// File is its name in attachments/.
	File string
	// ContainerID is the one its name stands for; empty if it is the name of none.
	ContainerID string
	// Reason says what is wrong with it.
	Reason error
	// MovedTo is its name in quarantine/; empty if it could not be moved.
	MovedTo string
	// MoveErr is why it could not be moved for good; nil if it was.
	MoveErr error
}

// FutureVersion is a file that a newer version of the program wrote.
type FutureVersion struct {
	// File is its name in attachments/.
	File string
	// ContainerID is the one its name stands for; empty if it is the name of none.
	ContainerID string
	// Owner and Pool are empty where they could not be read.
	Owner, Pool string
	// Version is that of its envelope.
	Version int
}

// Load reads every record, removes the temporary files of previous runs, and moves to
// quarantine/ each file that is not a record: such a file is reported, never fatal. The error is that the folder or a file in it could not be looked at
// (permission, I/O error, no descriptors left); then nothing may be served, and nothing
// is moved because of it: a later Load, without the cause, finds every record.
func (j *Journal) Load() (Loaded, error) {
	if err := j.Available(); err != nil {
		return Loaded{}, fmt.Errorf("journal: load: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	entries, err := fs.ReadDir(j.attachments.FS(), ".")
	if err != nil {
		return Loaded{}, fmt.Errorf("journal: read %s: %w", j.attachments.Name(), err)
	}
	j.recallReasons()
	var l Loaded
	clear(j.newer)
	for _, e := range entries {
		if err := j.loadFile(&l, e.Name()); err != nil {
			return Loaded{}, fmt.Errorf("journal: read %s in %s: %w", e.Name(), j.attachments.Name(), err)
		}
	}
	slices.SortFunc(l.Records, func(a, b record.Record) int { return strings.Compare(a.ContainerID, b.ContainerID) })
	return l, nil
}

// loadFile puts one entry of attachments/ where it belongs.
func (j *Journal) loadFile(l *Loaded, name string) error {
	failpoint.Reach(failpoint.LeftoverRemoving)
	if leftover.MatchString(name) && j.attachments.Remove(name) == nil {
		failpoint.Reach(failpoint.LeftoverRemoved)
		return nil
	}
	id := containerIDOf(name)
	r, err := j.recordIn(name)
	if _, unseen := errors.AsType[*unseenError](err); unseen {
		return err
	}
	if newer, ok := errors.AsType[*newerError](err); ok {
		j.newer[id] = true
		l.FutureVersions = append(l.FutureVersions, FutureVersion{File: name, ContainerID: id, Owner: newer.owner, Pool: newer.pool, Version: newer.version})
		return nil
	}
	if err != nil {
		p := Problem{File: name, ContainerID: id, Reason: err}
		p.MovedTo, p.MoveErr = j.moveToQuarantine(name, err.Error())
		l.Problems = append(l.Problems, p)
		return nil
	}
	l.Records = append(l.Records, r)
	return nil
}

// recordIn returns the record in a file, if it is ours and has the right name.
func (j *Journal) recordIn(name string) (record.Record, error) {
	data, err := readIn(j.attachments, name)
	if err != nil {
		return record.Record{}, err
	}
	r, err := decode(data)
	if err != nil {
		return record.Record{}, err
	}
	if name != r.ContainerID+suffix {
		return record.Record{}, fmt.Errorf("its name does not fit its record of container ID %s; expected %s", r.ContainerID, r.ContainerID+suffix)
	}
	return r, j.here(r)
}

// readIn returns the content of a regular file in a folder. It never follows a
// link: not one that is there, and not one put there between the look and the opening.
func readIn(in *folder, name string) ([]byte, error) {
	seen, err := in.Lstat(name)
	if err != nil {
		return nil, &unseenError{err}
	}
	if !seen.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no regular file (%s)", seen.Mode().Type())
	}
	f, err := in.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, &unseenError{err}
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return nil, &unseenError{err}
	}
	if !os.SameFile(seen, opened) {
		return nil, errors.New("it was replaced while it was read")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, &unseenError{err}
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return data, nil
}

// unseenError: the system did not let us look at a file. That says nothing of what
// is in it: it may be a good record, which must not go to quarantine for that.
type unseenError struct{ cause error }

func (e *unseenError) Error() string {
	return fmt.Sprintf("%v; the file may be a good record, so it is left where it is and nothing is served without it: remove the cause and start again, or move the file to %s/ if it is lost for good", e.cause, quarantineName)
}

func (e *unseenError) Unwrap() error { return e.cause }
