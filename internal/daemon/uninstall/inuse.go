package uninstall

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/boltfile"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/spool"
)

// InUse returns why a state directory must not be removed: without it, addresses stay allocated by the plugin, and
// no process releases them. It is nil without the directory. Damaged files and records count unless they are discarded.
func InUse(stateDir string, discardQuarantine bool, now time.Time) error {
	const discard = "whose owners may hold addresses; release those by the plugin, then run `delegated-ipam uninstall` with --discard-quarantine"
	_, all, err := journal.Read(stateDir)
	_, damaged := errors.AsType[boltfile.DamageError](err)
	switch {
	case err != nil && !damaged: // a disk that cannot be read, or a newer version has written it
		return err
	case damaged && !discardQuarantine:
		return fmt.Errorf("%w, %s", err, discard)
	}
	var held, late, unknown []string
	for _, r := range all.Records {
		switch {
		case ofRuntime(r):
		case r.State != attachment.Tombstone:
			held = append(held, journal.Describe(r))
		case now.Before(lateUntil(r.LateDel, now)):
			late = append(late, fmt.Sprintf("%s of pool %s: until %s", r.Owner, r.Pool, r.LateDel.Until.Format(time.RFC3339)))
		}
	}
	for _, p := range all.Problems {
		unknown = append(unknown, fmt.Sprintf("the record of %s of pool %s: %s", p.Owner, p.Pool, p.Reason))
	}
	for _, dir := range []string{journal.QuarantineName, filepath.Join(spool.Subdir, spool.Quarantine)} {
		entries, err := os.ReadDir(filepath.Join(stateDir, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			unknown = append(unknown, filepath.Join(dir, e.Name()))
		}
	}
	if discardQuarantine {
		unknown = nil
	}
	dels, err := spool.Pending(stateDir)
	return errors.Join(
		err,
		list(held, "the journal has %d attachments; start the daemon and run `delegated-ipam release --all --yes`, and `delegated-ipam journal delete` for those that the plugin refuses:"),
		list(late, "the outcome of %d DELs is unknown, and they may still release an address; run the command again later:"),
		list(unknown, "%d records and files are damaged, "+discard+":"),
		list(dels, "the spool has %d DELs of containers whose addresses the plugin may hold; start the daemon, which carries them out; "+spool.Remedy+":"),
	)
}

// list returns an error with a heading, which gets the number of lines, and the indented lines; nil for none.
func list(lines []string, heading string) error {
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf(heading+"\n  %s", len(lines), strings.Join(lines, "\n  "))
}

// ofRuntime reports whether the runtime of a container releases a record. Its DEL reaches the plugin without
// the daemon, too, but not what the plugin has under an ID of the daemon.
func ofRuntime(r attachment.Record) bool {
	ours := func(inv call.Invocation) bool { return r.Lent != nil || inv.KeepsLost }
	return attachment.OfContainer(r.Owner) && !slices.ContainsFunc(r.Invocations, ours) && (r.State == attachment.Adding || r.State == attachment.Held)
}

// lateUntil returns until when a DEL may act: not longer than its duration from now on, even if the
// clock was set back since.
func lateUntil(l attachment.LateDel, now time.Time) time.Time {
	if longest := now.Add(time.Duration(l.Seconds) * time.Second); l.Until.After(longest) {
		return longest
	}
	return l.Until
}
