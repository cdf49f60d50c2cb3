package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// InUseError is why a journal must not be removed: without it, addresses stay allocated by the
// plugin, and no process releases them.
type InUseError struct {
	// Records may hold addresses, unfinished operations included.
	Records []record.Record
	// Late are records without an address whose last DEL may still act on the plugin's state.
	Late []record.Record
	// FutureVersions and Quarantined are files of unknown content.
	FutureVersions []FutureVersion
	Quarantined    []Quarantined
}

// Error returns a line for each record and file, with what to do.
func (e *InUseError) Error() string {
	parts := slices.Concat(
		part("the journal has %d attachments; start the sidecar and run `delegated-ipam release --all --yes`, and `release --discard` for those that the plugin refuses:", e.Records, describe),
		part("the outcome of %d DELs is unknown, and they may still release an address; run the command again later:", e.Late, func(r record.Record) string {
			return fmt.Sprintf("%s of pool %s: until %s", r.Owner, r.Pool, r.LateDel.Until.Format(time.RFC3339))
		}),
		part("only a newer delegated-ipam understands %d records; run its command:", e.FutureVersions, func(f FutureVersion) string {
			return fmt.Sprintf("%s: version %d, owner %q of pool %q", f.File, f.Version, f.Owner, f.Pool)
		}),
		part(quarantineName+"/ has %d files, whose owners may hold addresses; release those by the plugin, then run the command again with --discard-quarantine:", e.Quarantined, func(q Quarantined) string {
			return q.Name + ": " + q.Reason
		}),
	)
	return strings.Join(parts, "\n")
}

// part returns a heading with the number of elements, and an indented line for each; nothing for none.
func part[T any](heading string, all []T, text func(T) string) []string {
	if len(all) == 0 {
		return nil
	}
	lines := []string{fmt.Sprintf(heading, len(all))}
	for _, v := range all {
		lines = append(lines, "  "+text(v))
	}
	return lines
}

// describe returns the owner, the state and the addresses of a record.
func describe(r record.Record) string {
	text := fmt.Sprintf("%s of pool %s (%s, container ID %s)", r.Owner, r.Pool, r.State, r.IDInUse())
	var addrs []string
	for _, a := range r.Addrs() {
		addrs = append(addrs, a.String())
	}
	if len(addrs) > 0 {
		text += ": " + strings.Join(addrs, ", ")
	}
	return text
}

// Count returns the number of records in a state directory that a sidecar has to release, or that cannot be
// read; 0 without the directory. A process may use the directory meanwhile.
func Count(dir string) (n int, err error) {
	dir = filepath.Join(dir, attachmentsName)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), fileSuffix) {
			continue
		}
		var r record.Record
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err == nil {
			r, err = decode(data, "") // a process may be writing the other half
		}
		if err != nil || r.State != record.Tombstone && !ofRuntime(r) {
			n++
		}
	}
	return n, err
}

// ofRuntime reports whether the runtime of a container releases a record. Its DEL reaches the plugin without
// the sidecar, too.
func ofRuntime(r record.Record) bool {
	return record.OfContainer(r.Owner) && (r.State == record.Adding || r.State == record.Held)
}

// inUse returns an *InUseError if the journal may hold an address, and moves unusable files to
// quarantine/ as Load does.
func (j *Journal) inUse(discardQuarantine bool) error {
	loaded, err := j.Load()
	if err != nil {
		return err
	}
	e := &InUseError{FutureVersions: loaded.FutureVersions}
	now := time.Now()
	for _, r := range loaded.Records {
		switch {
		case ofRuntime(r):
		case r.State != record.Tombstone:
			e.Records = append(e.Records, r)
		case now.Before(lateUntil(r.LateDel, now)):
			e.Late = append(e.Late, r)
		}
	}
	for _, p := range loaded.Problems {
		if p.MovedTo == "" {
			return fmt.Errorf("unusable record: %w", files.WithRemedy(p.MoveErr, stateDirFlag))
		}
	}
	quarantined, err := j.Quarantined()
	if err != nil {
		return err
	}
	if !discardQuarantine {
		e.Quarantined = quarantined
	}
	if len(e.Records)+len(e.Late)+len(e.FutureVersions)+len(e.Quarantined) > 0 {
		return e
	}
	return nil
}

// lateUntil returns until when a DEL may act: not longer than its duration from now on, even if the
// clock was set back since.
func lateUntil(l record.LateDel, now time.Time) time.Time {
	if longest := now.Add(time.Duration(l.Seconds) * time.Second); l.Until.After(longest) {
		return longest
	}
	return l.Until
}
