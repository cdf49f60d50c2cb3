package journal

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/boltfile"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// Loaded are the contents of a journal.
type Loaded struct {
	// Records are those that can be used, by pool and owner.
	Records []attachment.Record
	// Problems are why others cannot.
	Problems []Problem
	// BootID is that of the metadata; empty for a new journal.
	BootID string
}

// Problem is a damaged record or, without pool and owner, a file that cannot be used as a whole. Pool is as on disk.
type Problem struct {
	Pool, Owner string
	Reason      error
	value       []byte // of the record
}

// Load returns every record, after it has written the journal anew: what the previous process has written may be in the
// memory of the kernel alone. Damaged records are moved to quarantine/; so is a file that cannot be used as a whole,
// and the journal is empty then. The error is that the file could not be read or written (permission, I/O error, no
// space), or that a newer version has written it. Then no owner may be served, and nothing is lost: a later Load,
// without the cause, returns every record.
func (j *Journal) Load() (Loaded, error) {
	if err := j.Available(); err != nil {
		return Loaded{}, err
	}
	j.committing.Lock()
	defer j.committing.Unlock()
	l, intact, err := j.load()
	if err == nil {
		err = j.rewrite(intact)
	}
	if err != nil {
		return Loaded{}, fmt.Errorf("%w; nothing is served without the journal: fix the cause and start again", j.error(err))
	}
	return l, nil
}

// SetBoot changes the BootID of the metadata, which Load has left as it was. It writes the journal anew.
func (j *Journal) SetBoot(id string) error {
	j.committing.Lock()
	defer j.committing.Unlock()
	j.options.BootID = id
	return j.error(j.recover())
}

// load reads the records and quarantines what is damaged.
func (j *Journal) load() (l Loaded, intact []boltfile.Entry, err error) {
	c, err := j.read(fileName)
	if whole, ok := errors.AsType[boltfile.DamageError](err); ok {
		l.Problems = append(l.Problems, Problem{Reason: whole})
		return l, nil, j.quarantine(fileName, time.Now().UTC().Format(nameTime), func(to string) error { return j.state.Rename(fileName, to) })
	}
	j.options.MachineID = cmp.Or(j.options.MachineID, c.MachineID)
	j.options.Node = cmp.Or(j.options.Node, c.Node)
	j.options.BootID = cmp.Or(c.BootID, j.options.BootID)
	if err == nil {
		err = c.checkDefaultPool(j.options.DefaultPool)
	}
	l = c.decode(j.options.DefaultPool)
	l.BootID = c.BootID
	for _, p := range l.Problems {
		if err == nil {
			// A start that fails after this, or a disk without space, must not leave another file each time.
			sum := sha256.Sum256(p.value)
			err = j.quarantine(url.PathEscape(p.Pool+"/"+p.Owner), fmt.Sprintf("-%x", sum[:8]), func(to string) error {
				text := fmt.Appendf(nil, reasonMark+"%v\n%s\n", p.Reason, p.value)
				return errors.Join(j.state.WriteFile(to, text, 0o600), j.state.Sync(to))
			})
		}
	}
	return l, c.records, err
}

// read returns the content of a file, if it is of this machine. A node in the same boot is the same machine, though its
// ID differs: a container of kind gets another one at each of its starts.
func (j *Journal) read(name string) (content, error) {
	c, err := readFile(j.state.Root, name)
	own := j.options.Metadata
	sameBoot := c.BootID == own.BootID && c.Node == own.Node
	if err == nil && !sameBoot && own.MachineID != "" && c.MachineID != "" && c.MachineID != own.MachineID {
		err = boltfile.Damaged("written on another machine (machine ID %s; expected %s)", c.MachineID, own.MachineID)
	}
	return c, err
}

const (
	// maxName leaves space for what follows within the 255 bytes that file systems allow for a name.
	maxName  = 200
	nameTime = "-20060102T150405.000000000"
)

// quarantine moves something to a name in quarantine/ that begins and ends with the given ones.
func (j *Journal) quarantine(name, end string, move func(to string) error) error {
	name = name[:min(len(name), maxName)] + end
	failpoint.Reach(failpoint.QuarantineMaking)
	err := j.state.Mkdir(QuarantineName, 0o700)
	failpoint.Reach(failpoint.QuarantineMade)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = move(filepath.Join(QuarantineName, name))
	}
	failpoint.Reach(failpoint.QuarantineMoved)
	// The new name is synced first: after a crash the file may have both names, but not none.
	for _, dir := range []string{QuarantineName, "."} {
		if err == nil {
			err = j.state.Sync(dir)
		}
		failpoint.Reach(failpoint.QuarantineSynced)
	}
	return files.In(j.state.Root, err)
}

// Quarantined is a file in quarantine/, which only an operator removes.
type Quarantined struct {
	// Name is its name there, Reason why it is unusable.
	Name, Reason string
	// Since is when it was moved there; zero if the file system does not report it.
	Since time.Time
}

// Quarantined returns the files in quarantine/, by name, while the state directory is Available.
func (j *Journal) Quarantined() (all []Quarantined, err error) {
	if err := j.Available(); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(j.state.FS(), QuarantineName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		reason, _ := j.reasons.LoadOrStore(e.Name(), sync.OnceValue(func() string { return j.reason(e.Name()) }))
		q := Quarantined{Name: e.Name(), Reason: reason.(func() string)()}
		if info, err := e.Info(); err == nil {
			// A rename changes the inode.
			q.Since = time.Unix(info.Sys().(*syscall.Stat_t).Ctim.Unix())
		}
		all = append(all, q)
	}
	return all, files.In(j.state.Root, err)
}

// reasonMark begins the first line of a record in quarantine/, which is its reason.
const reasonMark = "# "

// reason returns why a file in quarantine/ is unusable.
func (j *Journal) reason(name string) string {
	path := filepath.Join(QuarantineName, name)
	text, err := files.ReadIn(j.state.Root, path, 2*maxRecord)
	line, _, _ := strings.Cut(string(text), "\n")
	if reason, ok := strings.CutPrefix(line, reasonMark); ok {
		return reason
	}
	if _, damage := j.read(path); damage != nil {
		err = damage
	}
	return fmt.Sprint(err)
}

// Read returns the contents of the journal in a state directory, of a running daemon, too; they are empty if there is
// none. The default pool has its name on disk. Nothing is changed. It fails if Load would fail or quarantine the file
// as a whole.
func Read(stateDir string) (Metadata, Loaded, error) {
	c, err := readRunning(stateDir)
	return c.Metadata, c.decode(storedDefaultPool), err
}

// Written returns an error that names the file if the metadata of Read is that of a state directory without a journal.
func Written(stateDir string, m Metadata) error {
	if m.Format > 0 {
		return nil
	}
	return fmt.Errorf("%s: no such file; expected --state-dir to be that of a daemon that has started", filepath.Join(stateDir, fileName))
}

// Backup copies the journal in a state directory, of a running daemon, too, to a new file, which is durable when it
// returns nil. It fails for the reasons of Read, without a journal, and if the new file exists.
func Backup(stateDir, to string) (records int, err error) {
	c, err := readRunning(stateDir)
	if err == nil {
		err = Written(stateDir, c.Metadata)
	}
	if err != nil {
		return 0, err
	}
	to = filepath.Clean(to) // of "dir/" the base is dir
	dir, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	f, err := boltfile.Create(dir, filepath.Base(to), c.fill()...)
	if err != nil {
		if !errors.Is(err, fs.ErrExist) {
			_ = dir.Remove(filepath.Base(to)) // it is not a copy, and the next call would refuse it
		}
		return 0, fmt.Errorf("%s: %w", to, files.Cause(err))
	}
	f.Close()
	return len(c.records), files.Sync(dir.Open("."))
}

func readRunning(stateDir string) (c content, err error) {
	dir, err := os.OpenRoot(stateDir)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	defer dir.Close()
	for range 20 { // a running daemon may change the file meanwhile
		c, err = readFile(dir, fileName)
		if _, changed := errors.AsType[boltfile.DamageError](err); !changed {
			break
		}
	}
	return c, files.AtPath(dir, fileName, err)
}
