// Package uninstall removes the files of a daemon that has ended, unless the plugin would keep an address.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/boltfile"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/history"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/spool"
)

// Options configure Run.
type Options struct {
	StateDir, SocketPath string
	// DiscardQuarantine removes damaged files and records, too, whose addresses the plugin may hold.
	DiscardQuarantine bool
	// Self and OnWait are those of statedir.Lock.
	Self   statedir.Holder
	OnWait func(holder string)
}

// Run removes the state directory, under its lock, for which it waits, and the socket. It returns the removed paths,
// also with an error. Without both it succeeds. A mount point is emptied.
//
// Nothing is removed from a directory that InUse reports, or that has a file which is not the daemon's. The lock is
// removed last, so that another call completes a removal that was interrupted.
func Run(ctx context.Context, o Options) (removed []string, err error) {
	removed, err = o.removeStateDir(ctx)
	if err != nil {
		return removed, err
	}
	socket, err := unixsock.Remove(o.SocketPath)
	return append(removed, socket...), err
}

func (o Options) removeStateDir(ctx context.Context) (removed []string, err error) {
	// An opened directory is not changed, unlike a locked one.
	d, err := statedir.Open(o.StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := namesOf(d)
	if err = errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	if len(names) > 0 {
		if removed, err = o.removeFiles(ctx); err != nil {
			return removed, err
		}
	}
	// What has replaced the directory stays: a symbolic link and a directory with files cannot be removed so.
	failpoint.Reach(failpoint.UninstallRemoving)
	err = unix.Rmdir(o.StateDir)
	failpoint.Reach(failpoint.UninstallRemoved)
	switch {
	case err == nil:
		return append(removed, o.StateDir), nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EBUSY), errors.Is(err, unix.EROFS): // the last two for a mount point
		return removed, nil
	}
	return removed, fmt.Errorf("state directory %s: %w", o.StateDir, err)
}

// removeFiles removes every file of the daemon.
func (o Options) removeFiles(ctx context.Context) (removed []string, err error) {
	d, err := statedir.Lock(ctx, o.StateDir, o.Self, o.OnWait)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	// Another directory may have its path by now.
	if err := d.Available("", nil); err != nil {
		return nil, err
	}
	if err := InUse(o.StateDir, o.DiscardQuarantine, time.Now()); err != nil {
		return nil, fmt.Errorf("state directory %s: %w", o.StateDir, err)
	}
	names, err := namesOf(d)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		failpoint.Reach(failpoint.UninstallRemoving)
		if name == spool.Subdir {
			err = spool.Remove(d.Root)
		} else {
			err = files.In(d.Root, d.RemoveAll(name))
		}
		failpoint.Reach(failpoint.UninstallRemoved)
		if err != nil {
			return removed, err
		}
		removed = append(removed, d.Path(name))
	}
	return removed, nil
}

// lostAndFound is a directory that mkfs creates in a new file system.
const lostAndFound = "lost+found"

// namesOf returns the names of the daemon's files in a state directory, in the order of their removal. It fails if
// there are others, which may be precious: the directory may be the wrong one.
func namesOf(d *statedir.Dir) ([]string, error) {
	directories := []string{journal.QuarantineName, spool.Subdir}
	regular := slices.Concat(journal.Files, history.Files, []string{statedir.PluginLocks, statedir.LockName})
	entries, err := fs.ReadDir(d.FS(), ".")
	var names, foreign []string
	for _, e := range entries {
		switch {
		case e.IsDir() && slices.Contains(directories, e.Name()), e.Type().IsRegular() && slices.Contains(regular, e.Name()):
			names = append(names, e.Name())
		case e.Name() != lostAndFound:
			foreign = append(foreign, d.Path(e.Name()))
		}
	}
	if len(foreign) > 0 {
		return nil, fmt.Errorf("state directory %s: %d files do not belong to delegated-ipam, and nothing is removed; remove them, or, if it is not a state directory, name the right one with %s:\n  %s",
			d.Name(), len(foreign), statedir.Flag, strings.Join(foreign, "\n  "))
	}
	if last := slices.Index(names, statedir.LockName); last >= 0 {
		names = append(slices.Delete(names, last, last+1), statedir.LockName)
	}
	return names, files.In(d.Root, err)
}

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
		case now.Before(r.LateDel.ActsUntil(now)):
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
