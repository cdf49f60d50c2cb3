package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
)

// journalInUse returns why the journal of a state directory must not be removed: without it, addresses stay
// allocated by the plugin, and no process releases them. Files in quarantine/ count unless they are discarded.
func journalInUse(stateDir string, discardQuarantine bool, now time.Time) error {
	_, all, err := journal.Read(stateDir)
	if err != nil && !discardQuarantine {
		return fmt.Errorf("%w; its owners may hold addresses: release those by the plugin, then run the command again with --discard-quarantine", err)
	}
	var held, late, unknown []string
	for _, r := range all.Records {
		switch {
		case ofRuntime(r):
		case r.State != attachment.Tombstone:
			held = append(held, describe(r))
		case now.Before(lateUntil(r.LateDel, now)):
			late = append(late, fmt.Sprintf("%s of pool %s: until %s", r.Owner, r.Pool, r.LateDel.Until.Format(time.RFC3339)))
		}
	}
	for _, p := range all.Problems {
		unknown = append(unknown, fmt.Sprintf("the record of %s of pool %s: %s", p.Owner, p.Pool, p.Reason))
	}
	entries, err := os.ReadDir(filepath.Join(stateDir, journal.QuarantineName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		unknown = append(unknown, filepath.Join(journal.QuarantineName, e.Name()))
	}
	if discardQuarantine {
		unknown = nil
	}
	lines := slices.Concat(
		part("the journal has %d attachments; start the sidecar and run `delegated-ipam release --all --yes`, and `delegated-ipam journal delete` for those that the plugin refuses:", held),
		part("the outcome of %d DELs is unknown, and they may still release an address; run the command again later:", late),
		part("%d records and files are damaged, and their owners may hold addresses; release those by the plugin, then run the command again with --discard-quarantine:", unknown),
	)
	if len(lines) > 0 {
		return errors.New(strings.Join(lines, "\n"))
	}
	return nil
}

// part returns a heading with the number of lines, and the indented lines; nothing for none.
func part(heading string, lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	return append([]string{fmt.Sprintf(heading, len(lines))}, "  "+strings.Join(lines, "\n  "))
}

// describe returns the owner, the state and the addresses of a record.
func describe(r attachment.Record) string {
	text := fmt.Sprintf("%s of pool %s (%s, container ID %s)", r.Owner, r.Pool, r.State, r.IDInUse())
	if addresses := addressesOf(r); addresses != "" {
		text += ": " + addresses
	}
	return text
}

// recordsToRelease returns the number of records in a state directory that a sidecar has to release, or that are
// damaged; 0 without the directory.
func recordsToRelease(stateDir string) (int, error) {
	_, all, err := journal.Read(stateDir)
	n := len(all.Problems)
	for _, r := range all.Records {
		if r.State != attachment.Tombstone && !ofRuntime(r) {
			n++
		}
	}
	return n, err
}

// ofRuntime reports whether the runtime of a container releases a record. Its DEL reaches the plugin without
// the sidecar, too.
func ofRuntime(r attachment.Record) bool {
	return attachment.OfContainer(r.Owner) && (r.State == attachment.Adding || r.State == attachment.Held)
}

// lateUntil returns until when a DEL may act: not longer than its duration from now on, even if the
// clock was set back since.
func lateUntil(l attachment.LateDel, now time.Time) time.Time {
	if longest := now.Add(time.Duration(l.Seconds) * time.Second); l.Until.After(longest) {
		return longest
	}
	return l.Until
}
