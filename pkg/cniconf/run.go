package cniconf

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle gathers the events of one change (an editor makes several) before
	// the files are read again.
	settle = 100 * time.Millisecond

	// recheck is how often the files are read again without an event: for what
	// cannot be watched (a link's target, a network's own folder, a file system
	// that reports nothing, no inotify instance left).
	recheck = 10 * time.Second
)

// Run reads the configurations again whenever they change, until ctx ends; it
// then returns nil. A folder that does not exist yet is waited for.
func (w *Watcher) Run(ctx context.Context) error {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.WithError(err).Warnf("CNI configuration cannot be watched; it is read every %s", recheck)
		w.loop(ctx, nil)
		return nil
	}
	w.loop(ctx, files)
	return files.Close()
}

// loop reads at its start, for what changed since New, on every sign of a change,
// and every recheck. files is nil where nothing can be watched.
func (w *Watcher) loop(ctx context.Context, files *fsnotify.Watcher) {
	var events chan fsnotify.Event
	var failures chan error
	if files != nil {
		events, failures = files.Events, files.Errors
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			// Watched first and read then, nothing falls between the two.
			if files != nil {
				w.watch(files)
			}
			w.reload()
			timer.Reset(recheck)
			soon = false
			continue
		case <-events:
		case err := <-failures:
			// Events may be lost (the kernel's queue ran over): look again.
			w.log.WithError(err).Warn("watching the CNI configuration")
		}
		// A time limit that is never moved on: changes without end must not keep
		// the files from being read.
		if !soon {
			timer.Reset(settle)
			soon = true
		}
	}
}

// watch has the source's folder watched or, while that does not exist, the nearest
// folder above it that does. What fails here is made up for by recheck.
func (w *Watcher) watch(files *fsnotify.Watcher) {
	for {
		target := nearest(w.source.folder())
		for _, old := range files.WatchList() {
			if old != target {
				// It may be gone already; either way it is not watched any more.
				_ = files.Remove(old)
			}
		}
		err := files.Add(target)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.log.WithError(err).WithField("folder", target).Warnf("CNI configuration cannot be watched; it is read every %s", recheck)
			return
		}
		// A folder made between the look and the watch would not show as an event.
		if nearest(w.source.folder()) == target {
			return
		}
	}
}

// nearest is the path itself or the closest one above it that is a folder.
func nearest(path string) string {
	for {
		info, err := os.Stat(path)
		parent := filepath.Dir(path)
		if err == nil && info.IsDir() || parent == path {
			return path
		}
		path = parent
	}
}
