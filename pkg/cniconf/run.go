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
	// debounce collects the events of one change (an editor causes several) before the
	// files are read again.
	debounce = 100 * time.Millisecond

	// rereadInterval is how often the files are read without an event, for changes that
	// cannot be watched (a link's target, a network's own directory, a file system without
	// events, no inotify instance left).
	rereadInterval = 10 * time.Second
)

// Run reads the configurations after each change, until ctx ends; it then returns nil. The
// directory may be created later.
func (w *Watcher) Run(ctx context.Context) error {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.WithError(err).Warnf("CNI configuration cannot be watched; reading it every %s", rereadInterval)
		w.loop(ctx, nil)
		return nil
	}
	w.loop(ctx, files)
	return files.Close()
}

// Reload lets Run read the configurations immediately. It does not wait for that.
func (w *Watcher) Reload() {
	select {
	case w.requests <- struct{}{}:
	default: // one is due anyway
	}
}

// loop reads the files at its start, for changes since New, after each event and each Reload, and
// every rereadInterval. files is nil where nothing can be watched.
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
			w.reload()
			timer.Reset(rereadInterval)
			scheduled = false
			continue
		case <-w.requests:
			timer.Reset(0)
			scheduled = true
			continue
		case <-events:
		case err := <-failures:
			// Events may be lost (the kernel's queue overflowed), so the files are read.
			w.log.WithError(err).Warn("Watching the CNI configuration failed")
		}
		// The delay is not extended by further events, so that endless changes do not
		// prevent a read.
		if !scheduled {
			timer.Reset(debounce)
			scheduled = true
		}
	}
}

// watch watches the source's directory or, while that does not exist, its nearest existing
// parent. rereadInterval makes up for a failure.
func (w *Watcher) watch(files *fsnotify.Watcher) {
	for {
		target := nearest(w.source.directory())
		for _, old := range files.WatchList() {
			if old != target {
				// An error means that it was deleted, so it is not watched either.
				_ = files.Remove(old)
			}
		}
		err := files.Add(target)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.log.WithError(err).WithField("directory", target).Warnf("CNI configuration cannot be watched; reading it every %s", rereadInterval)
			return
		}
		// A directory that was created before Add caused no event.
		if nearest(w.source.directory()) == target {
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
