package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// leftover matches the names of temporary files. A container ID does not begin with a dot, so none is
// the name of a record.
var leftover = regexp.MustCompile(`^\..*\.json[0-9]+$`)

// Loaded is the result of Load.
type Loaded struct {
	// Records are the readable records, by container ID.
	Records []record.Record
	// Problems are the unusable files, by name.
	Problems []Problem
	// FutureVersions are the files of a newer version, by name. They are not moved. Their
	// owners must not be served, because what they hold is unknown.
	FutureVersions []FutureVersion
}

// Problem is a file in attachments/ that is not a record.
type Problem struct {
	// File is its name in attachments/.
	File string
	// ContainerID is the one in its name; empty for a name of another form.
	ContainerID string
	// Reason is why it is not a record.
	Reason error
	// MovedTo is its name in quarantine/; empty if it could not be moved.
	MovedTo string
	// MoveErr is why it could not be moved durably; nil if it was.
	MoveErr error
}

// FutureVersion is a file that a newer version of the program wrote.
type FutureVersion struct {
	// File is its name in attachments/.
	File string
	// ContainerID is the one in its name; empty for a name of another form.
	ContainerID string
	// Owner and Pool are empty if they could not be read.
	Owner, Pool string
	// Version is the number in its envelope.
	Version int
}

// Load reads every record, removes the temporary files of previous runs, and moves each file
// that is not a record to quarantine/: such a file is reported, never fatal. The error is that
// the directory or a file in it could not be read (permission, I/O error, no descriptors left).
// No owner may be served then, and no file is moved for it: a later Load, without the cause,
// finds every record.
func (j *Journal) Load() (Loaded, error) {
	if err := j.Available(); err != nil {
		return Loaded{}, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	entries, err := j.attachments.entries()
	if err != nil {
		return Loaded{}, fmt.Errorf("directory %s: %w", j.attachments.Name(), files.WithoutPath(err, j.attachments.Name()))
	}
	j.reloadReasons()
	var l Loaded
	clear(j.futureVersions)
	shared := common{map[string]string{}, map[string]json.RawMessage{}, map[string]profile.Profile{}}
	for _, e := range entries {
		if err := j.loadFile(&l, shared, e.Name()); err != nil {
			return Loaded{}, fmt.Errorf("record %s: %w", j.attachments.path(e.Name()), err)
		}
	}
	slices.SortFunc(l.Records, func(a, b record.Record) int { return strings.Compare(a.ContainerID, b.ContainerID) })
	return l, nil
}

// loadFile adds one entry of attachments/ to l, moves it to quarantine/ or removes it.
func (j *Journal) loadFile(l *Loaded, shared common, name string) error {
	failpoint.Reach(failpoint.LeftoverRemoving)
	if leftover.MatchString(name) && j.attachments.Remove(name) == nil {
		failpoint.Reach(failpoint.LeftoverRemoved)
		return nil
	}
	id := containerIDFromName(name)
	r, err := j.readRecord(j.attachments, name)
	if expected := r.ContainerID + fileSuffix; err == nil && name != expected {
		err = fmt.Errorf("name does not match the record of container ID %s; expected %s", r.ContainerID, expected)
	}
	if _, ok := errors.AsType[*unreadableError](err); ok {
		return err
	}
	if future, ok := errors.AsType[*futureVersionError](err); ok {
		j.futureVersions[id] = true
		l.FutureVersions = append(l.FutureVersions, FutureVersion{File: name, ContainerID: id, Owner: future.owner, Pool: j.poolName(future.pool), Version: future.version})
		return nil
	}
	if err != nil {
		p := Problem{File: name, ContainerID: id, Reason: err}
		p.MovedTo, p.MoveErr = j.moveToQuarantine(name, err.Error())
		l.Problems = append(l.Problems, p)
		return nil
	}
	r.Pool = j.poolName(r.Pool)
	shared.share(&r)
	l.Records = append(l.Records, r)
	return nil
}

// common has texts, configurations and profiles (by plugin type) of records. Most records have the same
// ones, and memory needs each only once.
type common struct {
	texts    map[string]string
	configs  map[string]json.RawMessage
	profiles map[string]profile.Profile
}

// share replaces parts of a record by equal ones that are known.
func (c common) share(r *record.Record) {
	texts := []*string{&r.ContainerID, &r.Pool, &r.Node, &r.Network, &r.BootID, &r.MachineID}
	for i := range r.Invocations {
		inv := &r.Invocations[i]
		texts = append(texts, &inv.ContainerID, &inv.Network, &inv.CNIVersion, &inv.Plugin, &inv.Binary, &inv.Path, &inv.IfName, &inv.NetNS)
		if config, ok := c.configs[string(inv.Config)]; ok {
			inv.Config = config
		} else {
			c.configs[string(inv.Config)] = inv.Config
		}
		if p, ok := c.profiles[inv.Plugin]; ok && reflect.DeepEqual(p, inv.Profile) {
			inv.Profile = p
		} else {
			c.profiles[inv.Plugin] = inv.Profile
		}
	}
	for _, text := range texts {
		if known, ok := c.texts[*text]; ok {
			*text = known
		} else {
			c.texts[*text] = *text
		}
	}
}

// poolName returns the name of a pool on disk by the options.
func (j *Journal) poolName(stored string) string {
	if stored == storedDefaultPool {
		return j.options.DefaultPool
	}
	return stored
}

// containerIDFromName returns the container ID of a file name; empty for a name of another form.
func containerIDFromName(name string) string {
	id, ok := strings.CutSuffix(name, fileSuffix)
	if !ok || !record.ValidContainerID(id) {
		return ""
	}
	return id
}

// readRecord returns the record in a file, if it is of this machine.
func (j *Journal) readRecord(in *directory, name string) (r record.Record, err error) {
	data, err := readFile(in, name)
	if err == nil {
		r, err = decode(data, j.options.BootID)
	}
	if err == nil {
		err = j.checkMachine(r)
	}
	return r, err
}

// readFile returns the content of a regular file in a directory, through no link. The error is an
// *unreadableError if the system could not read the file; any other describes the file.
func readFile(in *directory, name string) ([]byte, error) {
	data, err := files.ReadIn(in.Root, name, maxFile)
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, &unreadableError{files.WithoutPath(err, in.path(name))}
	}
	return data, err
}

// unreadableError: the system could not read a file. That is not evidence of its content: it
// may be a valid record, which must not be quarantined.
type unreadableError struct{ cause error }

func (e *unreadableError) Error() string {
	return fmt.Sprintf("%v; the file may be a valid record, so it is not moved and nothing is served without it: fix the cause and start again, or move the file to %s/ if it is lost", e.cause, quarantineName)
}

func (e *unreadableError) Unwrap() error { return e.cause }
