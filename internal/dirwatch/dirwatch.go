// Package dirwatch calls a function after each change in a directory, and at intervals for changes
// that cause no event.
package dirwatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"
)

const (
	// debounce collects the events of one change (an editor causes several) before the
	// files are read again.
	debounce = 100 * time.Millisecond

	// RereadInterval is how often the files are read without an event, for changes that
	// cannot be watched (a link's target, a subdirectory, a file system without events, no
	// inotify instance left).
	RereadInterval = 10 * time.Second
)

// Watcher watches one directory.
type Watcher struct {
	dir, what string
	read      func()
	log       logrus.FieldLogger
	// failure is why the directory could not be watched the last time; empty if it could.
	failure string
}

// New returns a watcher of a directory, which may be created later. Run calls read; what names the
// content of the directory in log lines, such as "CNI configuration".
func New(dir, what string, log logrus.FieldLogger, read func()) *Watcher {
	return &Watcher{dir: dir, what: what, read: read, log: log}
}

// Run calls the function at its start, after each change, and every RereadInterval,
// until ctx ends. It then returns nil, or why the watch could not be closed.
func (w *Watcher) Run(ctx context.Context) error {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.WithError(err).Warnf("%s cannot be watched; reading it every %s", w.what, RereadInterval)
		w.RunUnwatched(ctx)
		return nil
	}
	w.loop(ctx, files)
	return files.Close()
}

// RunUnwatched is Run on a system where nothing can be watched: without events.
func (w *Watcher) RunUnwatched(ctx context.Context) { w.loop(ctx, nil) }

// loop is Run; files is nil where nothing can be watched.
func (w *Watcher) loop(ctx context.Context, files *fsnotify.Watcher) {
	var events chan fsnotify.Event
	var failures chan error
	if files != nil {
		events, failures = files.Events, files.Errors
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	scheduled := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			// A change between the two calls shows as an event.
			if files != nil {
				w.watch(files)
			}
			w.read()
			timer.Reset(RereadInterval)
			scheduled = false
			continue
		case <-events:
		case err := <-failures:
			// Events may be lost (the kernel's queue overflowed), so the files are read.
			w.log.WithError(err).Warnf("Watching the %s failed", w.what)
		}
		// The delay is not extended by further events, so that endless changes do not
		// prevent a read.
		if !scheduled {
			timer.Reset(debounce)
			scheduled = true
		}
	}
}

// watch watches the directory or, while that does not exist, its nearest existing parent.
// RereadInterval makes up for a failure.
func (w *Watcher) watch(files *fsnotify.Watcher) {
	for {
		target := nearest(w.dir)
		for _, old := range files.WatchList() {
			if old != target {
				// An error means that it was deleted, so it is not watched either.
				_ = files.Remove(old)
			}
		}
		err := files.Add(target)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			if w.failure != err.Error() {
				w.log.WithError(err).WithField("directory", target).Warnf("%s cannot be watched; reading it every %s", w.what, RereadInterval)
			}
			w.failure = err.Error()
			return
		}
		w.failure = ""
		// A directory that was created before Add caused no event.
		if nearest(w.dir) == target {
			return
		}
	}
}

// nearest returns the path or its nearest parent that is a directory.
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
