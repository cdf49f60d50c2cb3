// Package history keeps which address was given to whom and freed when, in a bounded log in the state directory
// (docs/design/state-directory.md). It serves people: nothing is read from it again, and what a power loss or a full disk
// takes from it is lost.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

const (
	// name is the file of the newest events. Before it has more than maxSize bytes it becomes the file of older ones.
	name, older = "history.jsonl", "history.jsonl.1"
	fileMode    = 0o600
	maxSize     = 4 << 20
)

// Files are the names of the files in the state directory.
var Files = []string{name, older}

// Kind is what happened to addresses.
type Kind string

const (
	Allocated Kind = "allocated" // the plugin has allocated them to the owner, or again after they were lost or released
	Released  Kind = "released"  // a client has released them, and the plugin holds them until the end of the cooldown
	Freed     Kind = "freed"     // the plugin does not hold them any more
	Lost      Kind = "lost"      // the plugin was found not to hold them; the owner may still use them
)

// Event is a line of the log.
type Event struct {
	Time      time.Time    `json:"time"`
	Event     Kind         `json:"event"`
	Addresses []netip.Addr `json:"addresses"`
	// Owner is empty for a lease without an attachment.
	Owner       string `json:"owner,omitempty"`
	Pod         string `json:"pod,omitempty"`
	Pool        string `json:"pool"`
	Network     string `json:"network"`
	ContainerID string `json:"container-id"`
}

// Log is the open log. It is safe for concurrent use.
type Log struct {
	dir *statedir.Dir
	log logrus.FieldLogger
	max int64

	mu   sync.Mutex
	file *os.File
	size int64
	// torn: the last line may lack its end. failing: the last event could not be written.
	torn, failing bool
}

// New returns the log of a state directory, which is opened with the first event.
func New(dir *statedir.Dir, log logrus.FieldLogger) *Log {
	return &Log{dir: dir, log: log, max: maxSize}
}

// Close closes the file.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close() // nothing is synced
		l.file = nil
	}
}

// Changed adds what the change of a record means for its addresses; a zero record is none.
func (l *Log) Changed(before, after attachment.Record) {
	had := before.Addrs()
	if before.State == attachment.Tombstone {
		had = nil
	}
	switch {
	case after.State == attachment.Held && (before.State != attachment.Held || !slices.Equal(had, after.Addrs())):
		if gone := slices.DeleteFunc(had, after.Holds); len(gone) > 0 {
			l.addOf(Freed, before, gone)
		}
		l.addOf(Allocated, after, after.Addrs())
	case len(had) == 0:
	case after.State == attachment.Cooldown && before.State == attachment.Held:
		l.addOf(Released, before, had)
	case after.State == attachment.Adding && before.State == attachment.Held:
		l.addOf(Lost, before, had)
	case after.State == "" || after.State == attachment.Tombstone:
		l.addOf(Freed, before, had)
	}
}

func (l *Log) addOf(kind Kind, r attachment.Record, ips []netip.Addr) {
	l.Add(Event{Event: kind, Addresses: ips, Owner: r.Owner, Pod: r.Pod(), Pool: r.Pool, Network: r.Network, ContainerID: r.IDInUse()})
}

// Add adds an event of now. The first of several errors is logged.
func (l *Log) Add(e Event) {
	e.Time = time.Now().UTC().Round(time.Millisecond)
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		err = l.write(append(line, '\n'))
	}
	if err != nil && !l.failing {
		l.log.WithError(err).Warn("The history of the addresses cannot be written, and lacks events")
	}
	l.failing = err != nil
}

// write appends a line, to a new file if it would be too long for the present one. Nothing is synced: the journal has what
// must survive a power loss.
func (l *Log) write(line []byte) error {
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	if l.size > 0 && l.size+int64(len(line)) > l.max {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if l.torn {
		line = append([]byte{'\n'}, line...)
	}
	failpoint.Reach(failpoint.HistoryWriting)
	n, err := l.file.Write(line)
	failpoint.Reach(failpoint.HistoryWritten)
	l.size += int64(n)
	l.torn = n > 0 && n < len(line) || n == 0 && l.torn
	return err
}

// rotate begins a new file.
func (l *Log) rotate() error {
	failpoint.Reach(failpoint.HistoryWriting)
	err := l.dir.Rename(name, older)
	failpoint.Reach(failpoint.HistoryWritten)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have been removed
		return err
	}
	_ = l.file.Close()
	l.file = nil
	return l.open()
}

// open opens the file, and creates a missing one.
func (l *Log) open() error {
	failpoint.Reach(failpoint.HistoryOpening)
	f, err := l.dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NONBLOCK, fileMode)
	failpoint.Reach(failpoint.HistoryOpened)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, files.AtPath(l.dir.Root, name, errors.New("not a regular file")), f.Close())
	}
	l.file, l.size, l.torn = f, info.Size(), false
	if last := []byte{'\n'}; l.size > 0 {
		_, err = f.ReadAt(last, l.size-1)
		l.torn = err != nil || last[0] != '\n'
	}
	return nil
}

// Read returns the events of a state directory, the oldest first, also while its daemon runs. It skips lines that are not
// events, such as a torn one.
func Read(stateDir string) (all []Event, err error) {
	dir, err := statedir.Open(stateDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // it is only read
	newest, err := openIn(dir, name)
	if err != nil {
		return nil, err
	}
	defer newest.Close()
	before, err := openIn(dir, older) // after the newest, which may become this one
	if err != nil {
		return nil, err
	}
	defer before.Close()
	if !same(before, newest) {
		all = events(all, before)
	}
	return events(all, newest), nil
}

// openIn opens a file for reading; nil, which has no content, if it does not exist.
func openIn(dir *statedir.Dir, name string) (*os.File, error) {
	f, err := files.OpenIn(dir.Root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

func same(a, b *os.File) bool {
	of, err := a.Stat()
	other, otherErr := b.Stat()
	return err == nil && otherErr == nil && os.SameFile(of, other)
}

// events appends the events of a file.
func events(all []Event, r io.Reader) []Event {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxSize)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) == nil && !e.Time.IsZero() {
			all = append(all, e)
		}
	}
	return all
}
