package dirwatch

import (
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// A node may have no inotify watch left for as long as the process runs.
func TestLoggedOnce(t *testing.T) {
	closed, err := fsnotify.NewWatcher()
	check.Must(t, err)
	check.Must(t, closed.Close())
	open, err := fsnotify.NewWatcher()
	check.Must(t, err)
	defer open.Close()
	log, hook := test.NewNullLogger()
	w := New(t.TempDir(), "spool", log, func() {})
	for _, files := range []*fsnotify.Watcher{closed, closed, closed, open, closed} {
		w.watch(files)
	}
	check.Equal(t, "lines", len(hook.AllEntries()), 2)
}
