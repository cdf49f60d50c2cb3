// Package uninstall removes the files of a daemon that has ended, unless the plugin would keep an address.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/history"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
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
